"""Words that `perturbations` exchanges: opposites, number words, names of the calendar."""

# A line holds opposites of one part of speech and form, so that a sentence stays one. Of words with
# several senses only those are here whose opposite is the same in most.
ANTONYMS = """
good bad
better worse
best worst
well badly
big small
bigger smaller
large tiny
larger smaller
long short
longer shorter
high low
higher lower
highest lowest
old young
older younger
new old
early late
earlier later
hot cold
warm cool
strong weak
stronger weaker
strongly weakly
rich poor
hard easy
difficult easy
easily hardly
fast slow
quickly slowly
heavy light
deep shallow
wide narrow
near far
open closed
full empty
clean dirty
clear unclear
dark bright
public private
major minor
maximum minimum
positive negative
possible impossible
necessary unnecessary
able unable
likely unlikely
certain uncertain
legal illegal
equal unequal
fair unfair
happy unhappy
popular unpopular
successful unsuccessful
important unimportant
acceptable unacceptable
effective ineffective
sufficient insufficient
efficient inefficient
adequate inadequate
correct incorrect
right wrong
true false
safe dangerous
healthy sick
alive dead
present absent
internal external
domestic foreign
northern southern
eastern western
north south
east west
left right
male female
more less
most least
many few
much little
always never
often rarely
before after
above below
inside outside
with without
up down
first last
former latter
increase decrease
increases decreases
increased decreased
increasing decreasing
rise fall
rising falling
rose fell
win lose
won lost
begin end
began ended
start stop
started stopped
open close
opened closed
accept reject
accepted rejected
agree disagree
agreed disagreed
approve disapprove
support oppose
supported opposed
supports opposes
allow forbid
allowed forbidden
allows forbids
include exclude
included excluded
including excluding
improve worsen
improved worsened
strengthen weaken
strengthened weakened
encourage discourage
love hate
loved hated
buy sell
bought sold
give take
gave took
come go
came went
remember forget
remembered forgot
succeed fail
succeeded failed
success failure
advantage disadvantage
strength weakness
beginning end
majority minority
war peace
day night
life death
friend enemy
friends enemies
man woman
men women
everybody nobody
everyone nobody
everything nothing
"""

# Words of a line replace each other; each keeps the grammar of the sentence.
NUMBER_WORDS = {
    "en": """
two three four five six seven eight nine ten eleven twelve
thirteen fourteen fifteen sixteen seventeen eighteen nineteen
twenty thirty forty fifty sixty seventy eighty ninety
hundred thousand million billion
hundreds thousands millions billions
third fourth fifth sixth seventh eighth ninth tenth
""",
    "de": """
zwei drei vier fünf sechs sieben acht neun zehn elf zwölf
dreizehn vierzehn fünfzehn sechzehn siebzehn achtzehn neunzehn
zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig
hundert tausend
million milliarde
millionen milliarden
dritte vierte fünfte sechste siebte achte neunte zehnte
dritten vierten fünften sechsten siebten achten neunten zehnten
""",
    # Not neuf, which is also "new".
    "fr": """
deux trois quatre cinq six sept huit dix onze douze
treize quatorze quinze seize
vingt trente quarante cinquante soixante
cent mille
million milliard
millions milliards
troisième quatrième cinquième sixième septième huitième neuvième dixième
""",
    "es": """
dos tres cuatro cinco seis siete ocho nueve diez once doce
trece catorce quince dieciséis diecisiete dieciocho diecinueve
veinte treinta cuarenta cincuenta sesenta setenta ochenta noventa
cien mil
millón billón
millones billones
tercera cuarta quinta sexta séptima octava novena décima
""",
    # Not sei, which is also "you are".
    "it": """
due tre quattro cinque sette otto nove dieci undici dodici
tredici quattordici quindici sedici diciassette diciotto diciannove
venti trenta quaranta cinquanta sessanta settanta ottanta novanta
cento mille
milione miliardo
milioni miliardi
terza quarta quinta sesta settima ottava nona decima
""",
}

# Capitalized in English; they replace each other and no other names.
CALENDAR = (
    "January February March April May June July August September October November December",
    "Monday Tuesday Wednesday Thursday Friday Saturday Sunday",
)

# Capitalized words that are no part of a name.
TITLES = {
    "en": "I Mr Mrs Ms Miss Madam Dr Sir Prof",
    "fr": "M MM Mme Mmes Mlle Monsieur Madame Mesdames Messieurs Dr",
    "es": "Sr Sra Señor Señora Señorías Don Doña Dr Dra",
    "it": "Signor Signora Signori Sig On Onorevole Dott",
}
