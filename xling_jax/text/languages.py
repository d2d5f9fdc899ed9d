"""Language codes: checks and aliases.

A language is the code used in the user's corpora (`en`, `de`, `ceb`, `zh_Hans`). Codes are never
translated silently: aliases and names serve to suggest the intended code, and to match files whose
codes come from other tools.
"""

import difflib
import re
from collections.abc import Sequence

# ISO 639-1; ISO 639-3 and other three-letter codes in use (639-2/B, the individual language that
# represents a macrolanguage in public test sets); the English name.
_ISO_639 = """
aa aar Afar|ab abk Abkhazian|ae ave Avestan|af afr Afrikaans|ak aka,twi Akan|am amh Amharic
an arg Aragonese|ar ara,arb Arabic|as asm Assamese|av ava Avaric|ay aym,ayr Aymara
az aze,azj Azerbaijani|ba bak Bashkir|be bel Belarusian|bg bul Bulgarian|bi bis Bislama
bm bam Bambara|bn ben Bengali|bo bod,tib Tibetan|br bre Breton|bs bos Bosnian|ca cat Catalan
ce che Chechen|ch cha Chamorro|co cos Corsican|cr cre Cree|cs ces,cze Czech|cv chv Chuvash
cy cym,wel Welsh|da dan Danish|de deu,ger German|dv div Dhivehi|dz dzo Dzongkha|ee ewe Ewe
el ell,gre Greek|en eng English|eo epo Esperanto|es spa Spanish|et est,ekk Estonian
eu eus,baq Basque|fa fas,per,pes Persian|ff ful Fulah|fi fin Finnish|fj fij Fijian
fo fao Faroese|fr fra,fre French|fy fry Frisian|ga gle Irish|gd gla Gaelic|gl glg Galician
gn grn,gug Guarani|gu guj Gujarati|gv glv Manx|ha hau Hausa|he heb Hebrew|hi hin Hindi
hr hrv Croatian|ht hat Haitian|hu hun Hungarian|hy hye,arm Armenian|hz her Herero
ia ina Interlingua|id ind Indonesian|ie ile Interlingue|ig ibo Igbo|ik ipk Inupiaq|io ido Ido
is isl,ice Icelandic|it ita Italian|iu iku Inuktitut|ja jpn Japanese|jv jav Javanese
ka kat,geo Georgian|kg kon Kongo|ki kik Kikuyu|kk kaz Kazakh|kl kal Greenlandic|km khm Khmer
kn kan Kannada|ko kor Korean|kr kau Kanuri|ks kas Kashmiri|ku kur,kmr Kurdish|kv kom Komi
kw cor Cornish|ky kir Kyrgyz|la lat Latin|lb ltz Luxembourgish|lg lug Ganda|li lim Limburgish
ln lin Lingala|lo lao Lao|lt lit Lithuanian|lv lav,lvs Latvian|mg mlg,plt Malagasy
mh mah Marshallese|mi mri,mao Maori|mk mkd,mac Macedonian|ml mal Malayalam|mn mon,khk Mongolian
mr mar Marathi|ms msa,may,zsm Malay|mt mlt Maltese|my mya,bur Burmese|na nau Nauru
nb nob Bokmål|ne nep,npi Nepali|nl nld,dut Dutch|nn nno Nynorsk|no nor Norwegian
nv nav Navajo|ny nya Chichewa|oc oci Occitan|om orm Oromo|or ori,ory Odia|os oss Ossetian
pa pan Punjabi|pi pli Pali|pl pol Polish|ps pus,pbt Pashto|pt por Portuguese|qu que,quy Quechua
rm roh Romansh|rn run Rundi|ro ron,rum Romanian|ru rus Russian|rw kin Kinyarwanda|sa san Sanskrit
sc srd Sardinian|sd snd Sindhi|se sme Sami|sg sag Sango|si sin Sinhala|sk slk,slo Slovak
sl slv Slovenian|sm smo Samoan|sn sna Shona|so som Somali|sq sqi,alb,als Albanian|sr srp Serbian
ss ssw Swati|st sot Sotho|su sun Sundanese|sv swe Swedish|sw swa,swh Swahili|ta tam Tamil
te tel Telugu|tg tgk Tajik|th tha Thai|ti tir Tigrinya|tk tuk Turkmen|tl tgl,fil Tagalog
tn tsn Tswana|to ton Tongan|tr tur Turkish|ts tso Tsonga|tt tat Tatar|ty tah Tahitian
ug uig Uyghur|uk ukr Ukrainian|ur urd Urdu|uz uzb,uzn Uzbek|vi vie Vietnamese|vo vol Volapük
wa wln Walloon|wo wol Wolof|xh xho Xhosa|yi yid,ydd Yiddish|yo yor Yoruba|za zha Zhuang
zh zho,chi,cmn Chinese|zu zul Zulu
"""

# Two or three letters, then subtags after "_" (pt_BR, zh_Hans). "-" separates the languages of a
# pair.
_CODE = re.compile(r"[a-z]{2,3}(_[A-Za-z0-9]{2,8})*")


# Three-letter code or lower-cased English name -> ISO 639-1 code.
_ALIASES = {
    alias: code
    for code, others, name in map(str.split, _ISO_639.strip().replace("\n", "|").split("|"))
    for alias in (*others.split(","), name.lower())
}


def is_code(code: str) -> bool:
    """Returns whether a string has the form of a language code: en, ceb, pt_BR."""
    return bool(_CODE.fullmatch(code))


def is_iso639(code: str) -> bool:
    """Returns whether a string is the code of a language in ISO 639-1: de, deu, de_AT; not src."""
    return is_code(code) and to_iso639_1(code) in _ALIASES.values()


def to_iso639_1(code: str) -> str:
    """The ISO 639-1 code of "deu", "ger", "de-AT", "deu_Latn", "German".

    For a language without one, the given code without subtags.
    """
    base = re.split("[-_]", code.strip().lower(), maxsplit=1)[0]
    return _ALIASES.get(base, base)


def match_code(tag: str, languages: Sequence[str]) -> str | None:
    """The one of the languages that a tag of another tool means, or None.

    By the whole code, else by what stands before the first "-", else by its ISO 639 alias: "de-DE",
    "deu" and "German" are "de".
    """
    exact = {code.lower().replace("_", "-"): code for code in languages}
    alias = {to_iso639_1(code): code for code in languages if "_" not in code}
    tag = tag.lower().replace("_", "-")
    base = tag.split("-")[0]
    return exact.get(tag) or exact.get(base) or alias.get(to_iso639_1(base))


def check_languages(codes: Sequence[str]) -> tuple[str, ...]:
    """Returns distinct language codes as a tuple; ValueError if one is malformed or repeated."""
    if isinstance(codes, str):
        raise ValueError(f"languages={codes!r} must be a list of codes; write {codes.split(',')}.")
    seen: dict[str, str] = {}
    for code in codes:
        if not isinstance(code, str) or not is_code(code):
            raise ValueError(
                f"languages: {code!r} is not a language code; write two or three small letters "
                f"(ISO 639), with subtags after '_': en, ceb, pt_BR.{_suggestion(str(code), ())}"
            )
        # A code with subtags is a separate variety: pt and pt_BR can be used together.
        meaning = to_iso639_1(code) if "_" not in code else code
        if meaning in seen:
            other = seen[meaning]
            reason = "is given twice" if other == code else f"means the same language as {other!r}"
            raise ValueError(f"languages: {code!r} {reason}; keep one of the two.")
        seen[meaning] = code
    return tuple(codes)


def check_known(code: str, known: Sequence[str], where: str) -> None:
    """Raises ValueError with near codes for one, asked for in `where`, that is not `known`."""
    if code not in known:
        raise ValueError(
            f"{where}: unknown language {code!r:.60}; known: {', '.join(known) or 'none'}."
            f"{_suggestion(code, known)}"
        )


def parse_pair(pair: str, allow_same: bool = False) -> tuple[str, str]:
    """Splits a directed pair "source-target" into its two languages, or raises ValueError.

    `allow_same` accepts a language with itself, which stands for text without translations.
    """
    codes = pair.split("-")
    if len(codes) != 2 or not all(map(is_code, codes)):
        raise ValueError(
            f"pair {pair!r} must be two language codes joined by '-', source first, such as de-en."
        )
    if codes[0] == codes[1] and not allow_same:
        raise ValueError(f"pair {pair!r} must name two different languages.")
    return codes[0], codes[1]


def _suggestion(code: str, known: Sequence[str]) -> str:
    """Returns " Did you mean 'de'?" for an alias or misspelling of a code, or an empty string."""
    meaning = to_iso639_1(code)
    same = [candidate for candidate in known if to_iso639_1(candidate) == meaning]
    if not known and meaning != code and is_code(meaning):
        same = [meaning]
    near = same or difflib.get_close_matches(code.lower(), known, n=3, cutoff=0.5)
    return f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
