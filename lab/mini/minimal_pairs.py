"""Which of two translations that differ little an encoder finds nearer, the right one or the other.

    python lab/mini/minimal_pairs.py --model mini

From English to the other four languages; chance is a half. `negation`: of a sentence and its
negation, both ways. Likewise `tense` (past and future), `person` (he and she, I and you), `number`,
`question` (and statement) and `opposites`. `roles`: who does what, persons and animals in all
pairs, "The doctor saw the dog." and "The dog saw the doctor." `homographs`: a word of two senses,
translated by either.
"""

import argparse
import itertools
from collections.abc import Iterator

import numpy as np

import xling_jax

LANGUAGES = ("de", "fr", "es", "it")
# A sentence and one that says something else, in English, German, French, Spanish and Italian.
PAIRS = {
    "negation": """\
He sleeps. He does not sleep.
Er schläft. Er schläft nicht.
Il dort. Il ne dort pas.
Él duerme. Él no duerme.
Lui dorme. Lui non dorme.

She is at home. She is not at home.
Sie ist zu Hause. Sie ist nicht zu Hause.
Elle est à la maison. Elle n'est pas à la maison.
Ella está en casa. Ella no está en casa.
Lei è a casa. Lei non è a casa.

We have time. We do not have time.
Wir haben Zeit. Wir haben keine Zeit.
Nous avons le temps. Nous n'avons pas le temps.
Tenemos tiempo. No tenemos tiempo.
Abbiamo tempo. Non abbiamo tempo.

I know him. I do not know him.
Ich kenne ihn. Ich kenne ihn nicht.
Je le connais. Je ne le connais pas.
Lo conozco. No lo conozco.
Lo conosco. Non lo conosco.

The shop is open. The shop is not open.
Der Laden ist offen. Der Laden ist nicht offen.
Le magasin est ouvert. Le magasin n'est pas ouvert.
La tienda está abierta. La tienda no está abierta.
Il negozio è aperto. Il negozio non è aperto.

They want to go. They do not want to go.
Sie wollen gehen. Sie wollen nicht gehen.
Ils veulent partir. Ils ne veulent pas partir.
Quieren ir. No quieren ir.
Vogliono andare. Non vogliono andare.

You must wait. You must not wait.
Du musst warten. Du darfst nicht warten.
Tu dois attendre. Tu ne dois pas attendre.
Debes esperar. No debes esperar.
Devi aspettare. Non devi aspettare.

The train has arrived. The train has not arrived.
Der Zug ist angekommen. Der Zug ist nicht angekommen.
Le train est arrivé. Le train n'est pas arrivé.
El tren ha llegado. El tren no ha llegado.
Il treno è arrivato. Il treno non è arrivato.

It works. It does not work.
Es funktioniert. Es funktioniert nicht.
Ça marche. Ça ne marche pas.
Funciona. No funciona.
Funziona. Non funziona.""",
    "tense": """\
He called me. He will call me.
Er hat mich angerufen. Er wird mich anrufen.
Il m'a appelé. Il m'appellera.
Me llamó. Me llamará.
Mi ha chiamato. Mi chiamerà.

She sold the house. She will sell the house.
Sie hat das Haus verkauft. Sie wird das Haus verkaufen.
Elle a vendu la maison. Elle vendra la maison.
Ella vendió la casa. Ella venderá la casa.
Ha venduto la casa. Venderà la casa.

We saw the film. We will see the film.
Wir haben den Film gesehen. Wir werden den Film sehen.
Nous avons vu le film. Nous verrons le film.
Vimos la película. Veremos la película.
Abbiamo visto il film. Vedremo il film.

They won the game. They will win the game.
Sie haben das Spiel gewonnen. Sie werden das Spiel gewinnen.
Ils ont gagné le match. Ils gagneront le match.
Ganaron el partido. Ganarán el partido.
Hanno vinto la partita. Vinceranno la partita.

The bus left at noon. The bus will leave at noon.
Der Bus fuhr mittags ab. Der Bus wird mittags abfahren.
Le bus est parti à midi. Le bus partira à midi.
El autobús salió al mediodía. El autobús saldrá al mediodía.
L'autobus è partito a mezzogiorno. L'autobus partirà a mezzogiorno.

I wrote a letter. I will write a letter.
Ich habe einen Brief geschrieben. Ich werde einen Brief schreiben.
J'ai écrit une lettre. J'écrirai une lettre.
Escribí una carta. Escribiré una carta.
Ho scritto una lettera. Scriverò una lettera.

It rained. It will rain.
Es hat geregnet. Es wird regnen.
Il a plu. Il pleuvra.
Llovió. Lloverá.
Ha piovuto. Pioverà.

You learned a lot. You will learn a lot.
Du hast viel gelernt. Du wirst viel lernen.
Tu as beaucoup appris. Tu apprendras beaucoup.
Aprendiste mucho. Aprenderás mucho.
Hai imparato molto. Imparerai molto.""",
    "person": """\
He is my neighbor. She is my neighbor.
Er ist mein Nachbar. Sie ist meine Nachbarin.
C'est mon voisin. C'est ma voisine.
Es mi vecino. Es mi vecina.
È il mio vicino. È la mia vicina.

He works in a bank. She works in a bank.
Er arbeitet in einer Bank. Sie arbeitet in einer Bank.
Il travaille dans une banque. Elle travaille dans une banque.
Él trabaja en un banco. Ella trabaja en un banco.
Lui lavora in una banca. Lei lavora in una banca.

I know him. I know her.
Ich kenne ihn. Ich kenne sie.
Je le connais. Je la connais.
Lo conozco. La conozco.
Lo conosco. La conosco.

I gave the book to him. I gave the book to her.
Ich habe ihm das Buch gegeben. Ich habe ihr das Buch gegeben.
C'est à lui que j'ai donné le livre. C'est à elle que j'ai donné le livre.
Le di el libro a él. Le di el libro a ella.
Ho dato il libro a lui. Ho dato il libro a lei.

He is tired. She is tired.
Er ist müde. Sie ist müde.
Il est fatigué. Elle est fatiguée.
Él está cansado. Ella está cansada.
Lui è stanco. Lei è stanca.

My brother is coming. My sister is coming.
Mein Bruder kommt. Meine Schwester kommt.
Mon frère vient. Ma sœur vient.
Mi hermano viene. Mi hermana viene.
Mio fratello viene. Mia sorella viene.

I am waiting for you. You are waiting for me.
Ich warte auf dich. Du wartest auf mich.
Je t'attends. Tu m'attends.
Te espero. Me esperas.
Ti aspetto. Mi aspetti.

They help us. We help them.
Sie helfen uns. Wir helfen ihnen.
Ils nous aident. Nous les aidons.
Nos ayudan. Los ayudamos.
Ci aiutano. Li aiutiamo.""",
    "number": """\
The dog is sleeping. The dogs are sleeping.
Der Hund schläft. Die Hunde schlafen.
Le chien dort. Les chiens dorment.
El perro duerme. Los perros duermen.
Il cane dorme. I cani dormono.

I bought a book. I bought books.
Ich habe ein Buch gekauft. Ich habe Bücher gekauft.
J'ai acheté un livre. J'ai acheté des livres.
Compré un libro. Compré libros.
Ho comprato un libro. Ho comprato dei libri.

The window is open. The windows are open.
Das Fenster ist offen. Die Fenster sind offen.
La fenêtre est ouverte. Les fenêtres sont ouvertes.
La ventana está abierta. Las ventanas están abiertas.
La finestra è aperta. Le finestre sono aperte.

The child is playing in the garden. The children are playing in the garden.
Das Kind spielt im Garten. Die Kinder spielen im Garten.
L'enfant joue dans le jardin. Les enfants jouent dans le jardin.
El niño juega en el jardín. Los niños juegan en el jardín.
Il bambino gioca nel giardino. I bambini giocano nel giardino.

The car costs too much. The cars cost too much.
Das Auto kostet zu viel. Die Autos kosten zu viel.
La voiture coûte trop cher. Les voitures coûtent trop cher.
El coche cuesta demasiado. Los coches cuestan demasiado.
L'auto costa troppo. Le auto costano troppo.

My friend lives here. My friends live here.
Mein Freund wohnt hier. Meine Freunde wohnen hier.
Mon ami habite ici. Mes amis habitent ici.
Mi amigo vive aquí. Mis amigos viven aquí.
Il mio amico vive qui. I miei amici vivono qui.

I am working today. We are working today.
Ich arbeite heute. Wir arbeiten heute.
Je travaille aujourd'hui. Nous travaillons aujourd'hui.
Trabajo hoy. Trabajamos hoy.
Oggi lavoro. Oggi lavoriamo.

She needs a day. She needs several days.
Sie braucht einen Tag. Sie braucht mehrere Tage.
Elle a besoin d'un jour. Elle a besoin de plusieurs jours.
Necesita un día. Necesita varios días.
Ha bisogno di un giorno. Ha bisogno di diversi giorni.""",
    "question": """\
The shop is open. Is the shop open?
Der Laden ist offen. Ist der Laden offen?
Le magasin est ouvert. Le magasin est-il ouvert ?
La tienda está abierta. ¿Está abierta la tienda?
Il negozio è aperto. È aperto il negozio?

You speak German. Do you speak German?
Du sprichst Deutsch. Sprichst du Deutsch?
Tu parles allemand. Est-ce que tu parles allemand ?
Hablas alemán. ¿Hablas alemán?
Parli tedesco. Parli tedesco?

He lives here. Does he live here?
Er wohnt hier. Wohnt er hier?
Il habite ici. Est-ce qu'il habite ici ?
Él vive aquí. ¿Vive él aquí?
Lui abita qui. Lui abita qui?

They have arrived. Have they arrived?
Sie sind angekommen. Sind sie angekommen?
Ils sont arrivés. Est-ce qu'ils sont arrivés ?
Han llegado. ¿Han llegado?
Sono arrivati. Sono arrivati?

I can help you. Can I help you?
Ich kann dir helfen. Kann ich dir helfen?
Je peux t'aider. Est-ce que je peux t'aider ?
Puedo ayudarte. ¿Puedo ayudarte?
Posso aiutarti. Posso aiutarti?

The train is late. Is the train late?
Der Zug hat Verspätung. Hat der Zug Verspätung?
Le train est en retard. Le train est-il en retard ?
El tren llega tarde. ¿Llega tarde el tren?
Il treno è in ritardo. Il treno è in ritardo?

She knows the answer. Does she know the answer?
Sie kennt die Antwort. Kennt sie die Antwort?
Elle connaît la réponse. Est-ce qu'elle connaît la réponse ?
Ella sabe la respuesta. ¿Sabe ella la respuesta?
Lei sa la risposta. Lei sa la risposta?

We were right. Were we right?
Wir hatten recht. Hatten wir recht?
Nous avions raison. Avions-nous raison ?
Teníamos razón. ¿Teníamos razón?
Avevamo ragione. Avevamo ragione?""",
    "opposites": """\
The water is hot. The water is cold.
Das Wasser ist heiß. Das Wasser ist kalt.
L'eau est chaude. L'eau est froide.
El agua está caliente. El agua está fría.
L'acqua è calda. L'acqua è fredda.

Open the door. Close the door.
Öffne die Tür. Schließ die Tür.
Ouvre la porte. Ferme la porte.
Abre la puerta. Cierra la puerta.
Apri la porta. Chiudi la porta.

Prices are rising. Prices are falling.
Die Preise steigen. Die Preise fallen.
Les prix augmentent. Les prix baissent.
Los precios suben. Los precios bajan.
I prezzi salgono. I prezzi scendono.

I love this film. I hate this film.
Ich liebe diesen Film. Ich hasse diesen Film.
J'adore ce film. Je déteste ce film.
Me encanta esta película. Odio esta película.
Amo questo film. Odio questo film.

He bought the house. He sold the house.
Er hat das Haus gekauft. Er hat das Haus verkauft.
Il a acheté la maison. Il a vendu la maison.
Compró la casa. Vendió la casa.
Ha comprato la casa. Ha venduto la casa.

The exam was easy. The exam was difficult.
Die Prüfung war leicht. Die Prüfung war schwer.
L'examen était facile. L'examen était difficile.
El examen fue fácil. El examen fue difícil.
L'esame era facile. L'esame era difficile.

Everyone came. No one came.
Alle sind gekommen. Niemand ist gekommen.
Tout le monde est venu. Personne n'est venu.
Todos vinieron. Nadie vino.
Sono venuti tutti. Non è venuto nessuno.

She always laughs. She never laughs.
Sie lacht immer. Sie lacht nie.
Elle rit toujours. Elle ne rit jamais.
Siempre se ríe. Nunca se ríe.
Ride sempre. Non ride mai.""",
}
# As the subject and as the object.
NOUNS = {
    "en": """the doctor|the lawyer|the teacher|the king|the dog|the child|the soldier|the woman""",
    "de": """der Arzt/den Arzt|der Anwalt/den Anwalt|der Lehrer/den Lehrer|der König/den König
der Hund/den Hund|das Kind|der Soldat/den Soldaten|die Frau""",
    "fr": "le médecin|l'avocat|le professeur|le roi|le chien|l'enfant|le soldat|la femme",
    "es": """el médico/al médico|el abogado/al abogado|el profesor/al profesor|el rey/al rey
el perro/al perro|el niño/al niño|el soldado/al soldado|la mujer/a la mujer""",
    "it": "il medico|l'avvocato|il professore|il re|il cane|il bambino|il soldato|la donna",
}
VERBS = {
    "en": "saw|followed|killed|called|saved",
    "de": "sah|verfolgte|tötete|rief|rettete",
    "fr": "a vu|a suivi|a tué|a appelé|a sauvé",
    "es": "vio|siguió|mató|llamó|salvó",
    "it": "ha visto|ha seguito|ha ucciso|ha chiamato|ha salvato",
}
# A sentence, its translation, another sense.
HOMOGRAPHS = """\
The bat left the cave.|Die Fledermaus verließ die Höhle.|Der Schläger verließ die Höhle.
She swung the bat.|Sie schwang den Schläger.|Sie schwang die Fledermaus.
He sat on the bank of the river.|Er saß am Ufer des Flusses.|Er saß an der Bank des Flusses.
The bank lent him money.|Die Bank lieh ihm Geld.|Das Ufer lieh ihm Geld.
They won the match.|Sie haben das Spiel gewonnen.|Sie haben das Streichholz gewonnen.
He lit a match.|Er zündete ein Streichholz an.|Er zündete ein Spiel an.
The spring broke.|Die Feder ist gebrochen.|Der Frühling ist gebrochen.
Flowers bloom in spring.|Blumen blühen im Frühling.|Blumen blühen in der Feder.
The seal swam in the sea.|Der Seehund schwamm im Meer.|Das Siegel schwamm im Meer.
The letter had a seal.|Der Brief hatte ein Siegel.|Der Brief hatte einen Seehund.
Write him a letter.|Schreib ihm einen Brief.|Schreib ihm einen Buchstaben.
The word has five letters.|Das Wort hat fünf Buchstaben.|Das Wort hat fünf Briefe.
The crane lifted the container.|Der Kran hob den Container.|Der Kranich hob den Container.
The crane flew over the lake.|Der Kranich flog über den See.|Der Kran flog über den See.
We ate bass for dinner.|Wir aßen Barsch zum Abendessen.|Wir aßen Bass zum Abendessen.
He plays the bass.|Er spielt Bass.|Er spielt Barsch.
He has a date with her.|Il a rendez-vous avec elle.|Il a une date avec elle.
What is today's date?|Quelle est la date d'aujourd'hui ?|Quel est le rendez-vous d'aujourd'hui ?
She likes jam.|Elle aime la confiture.|Elle aime l'embouteillage.
There is a jam on the road.|Il y a un embouteillage sur la route.|Il y a une confiture sur la route.
The head of the school left.|Le chef de l'école est parti.|La tête de l'école est partie.
My head hurts.|J'ai mal à la tête.|J'ai mal au chef.
The plant needs water.|La plante a besoin d'eau.|L'usine a besoin d'eau.
The workers left the plant.|Les ouvriers ont quitté l'usine.|Les ouvriers ont quitté la plante.
The light is too weak.|La luce è troppo debole.|Il leggero è troppo debole.
The bag is light.|La borsa è leggera.|La borsa è luce.
The court sentenced him.|Il tribunale lo ha condannato.|Il campo lo ha condannato.
The players left the court.|I giocatori lasciano il campo.|I giocatori lasciano il tribunale."""

Triple = tuple[str, str, str]  # a sentence, its translation, and the other


def words(text: str) -> list[str]:
    """The entries of a table."""
    return text.replace("\n", "|").split("|")


def pairs(kind: str) -> Iterator[Triple]:
    """Every sentence of a kind of pairs and its counterpart, in each of the other languages."""
    for entry in PAIRS[kind].split("\n\n"):
        english, *others = (line.split(". ", 1) for line in entry.splitlines())
        for _, (first, second) in zip(LANGUAGES, others, strict=True):
            yield f"{english[0]}.", f"{first}.", second
            yield english[1], second, f"{first}."


def roles(language: str) -> Iterator[Triple]:
    """All ordered pairs of nouns with all verbs."""

    def sentence(of: str, subject: int, verb: int, obj: int) -> str:
        nouns = words(NOUNS[of])
        phrase = nouns[subject].split("/")[0], words(VERBS[of])[verb], nouns[obj].split("/")[-1]
        text = " ".join(phrase)
        return f"{text[0].upper()}{text[1:]}."

    count = len(words(NOUNS["en"]))
    for verb in range(len(words(VERBS["en"]))):
        for one, two in itertools.permutations(range(count), 2):
            yield (
                sentence("en", one, verb, two),
                sentence(language, one, verb, two),
                sentence(language, two, verb, one),
            )


def main() -> None:
    """Prints how often the right one was nearer."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="mini", help="a model (%(default)s)")
    encoder = xling_jax.load(parser.parse_args().model)
    kinds = {
        **{kind: [*pairs(kind)] for kind in PAIRS},
        "roles": [triple for code in LANGUAGES for triple in roles(code)],
        "homographs": [tuple(line.split("|")) for line in HOMOGRAPHS.splitlines()],
    }
    for kind, triples in kinds.items():
        vectors = [encoder.encode(side, normalize=True) for side in zip(*triples)]
        right, other = (np.einsum("nd,nd->n", vectors[0], side) for side in vectors[1:])
        found, ties = (right > other + 1e-6).sum(), (abs(right - other) <= 1e-6).sum()
        means = f"{right.mean():.2f} with the right one, {other.mean():.2f} with the other"
        low, high = np.quantile(other, (0.05, 0.95))
        print(
            f"{kind}: {found} of {len(triples)} ({found / len(triples):.0%}), {ties} ties; "
            f"mean cosine {means} (5 to 95 %: {low:.2f} to {high:.2f})"
        )


if __name__ == "__main__":
    main()
