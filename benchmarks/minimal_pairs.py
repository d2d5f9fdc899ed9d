"""Which of two translations that differ little an encoder finds nearer, the right one or the other.

    python benchmarks/minimal_pairs.py --model mini

From English to the other four languages; chance is a half. `negation`: of a sentence and its
negation, both ways. `roles`: who does what, persons and animals in all pairs, "The doctor saw the
dog." and "The dog saw the doctor." `homographs`: a word of two senses, translated by either.
"""

import argparse
import itertools
from collections.abc import Iterator

import numpy as np

import xling_jax

LANGUAGES = ("de", "fr", "es", "it")
# A sentence, its negation.
NEGATION = {
    "en": """He sleeps. He does not sleep.
She is at home. She is not at home.
We have time. We do not have time.
I know him. I do not know him.
The shop is open. The shop is not open.
They want to go. They do not want to go.
You must wait. You must not wait.
The train has arrived. The train has not arrived.
It works. It does not work.""",
    "de": """Er schläft. Er schläft nicht.
Sie ist zu Hause. Sie ist nicht zu Hause.
Wir haben Zeit. Wir haben keine Zeit.
Ich kenne ihn. Ich kenne ihn nicht.
Der Laden ist offen. Der Laden ist nicht offen.
Sie wollen gehen. Sie wollen nicht gehen.
Du musst warten. Du darfst nicht warten.
Der Zug ist angekommen. Der Zug ist nicht angekommen.
Es funktioniert. Es funktioniert nicht.""",
    "fr": """Il dort. Il ne dort pas.
Elle est à la maison. Elle n'est pas à la maison.
Nous avons le temps. Nous n'avons pas le temps.
Je le connais. Je ne le connais pas.
Le magasin est ouvert. Le magasin n'est pas ouvert.
Ils veulent partir. Ils ne veulent pas partir.
Tu dois attendre. Tu ne dois pas attendre.
Le train est arrivé. Le train n'est pas arrivé.
Ça marche. Ça ne marche pas.""",
    "es": """Él duerme. Él no duerme.
Ella está en casa. Ella no está en casa.
Tenemos tiempo. No tenemos tiempo.
Lo conozco. No lo conozco.
La tienda está abierta. La tienda no está abierta.
Quieren ir. No quieren ir.
Debes esperar. No debes esperar.
El tren ha llegado. El tren no ha llegado.
Funciona. No funciona.""",
    "it": """Lui dorme. Lui non dorme.
Lei è a casa. Lei non è a casa.
Abbiamo tempo. Non abbiamo tempo.
Lo conosco. Non lo conosco.
Il negozio è aperto. Il negozio non è aperto.
Vogliono andare. Non vogliono andare.
Devi aspettare. Non devi aspettare.
Il treno è arrivato. Il treno non è arrivato.
Funziona. Non funziona.""",
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
    "en": "saw|followed|killed|called|helped",
    "de": "sah|verfolgte|tötete|rief|rettete",
    "fr": "a vu|a suivi|a tué|a appelé|a aidé",
    "es": "vio|siguió|mató|llamó|ayudó",
    "it": "ha visto|ha seguito|ha ucciso|ha chiamato|ha aiutato",
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


def negations(language: str) -> Iterator[Triple]:
    """Every sentence and every negation."""
    for entries in zip(words(NEGATION["en"]), words(NEGATION[language])):
        (plain, negated), (right, other) = (entry.split(". ", 1) for entry in entries)
        yield f"{plain}.", f"{right}.", other
        yield negated, other, f"{right}."


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
        "negation": [triple for code in LANGUAGES for triple in negations(code)],
        "roles": [triple for code in LANGUAGES for triple in roles(code)],
        "homographs": [tuple(line.split("|")) for line in HOMOGRAPHS.splitlines()],
    }
    for kind, triples in kinds.items():
        vectors = [encoder.encode(side, normalize=True) for side in zip(*triples)]
        right, other = (np.einsum("nd,nd->n", vectors[0], side) for side in vectors[1:])
        found, ties = (right > other + 1e-6).sum(), (abs(right - other) <= 1e-6).sum()
        print(
            f"{kind}: {found} of {len(triples)} ({found / len(triples):.0%}), {ties} ties; mean "
            f"cosine {right.mean():.2f} with the right one, {other.mean():.2f} with the other"
        )


if __name__ == "__main__":
    main()
