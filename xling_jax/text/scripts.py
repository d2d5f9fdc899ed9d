"""Scripts and alphabets of languages, for the character filters of cleaning.

Languages are looked up by `languages.to_iso639_1`; an unlisted language is not checked.
"""

import dataclasses
import functools
import re

from xling_jax.text.languages import to_iso639_1

# Script -> its characters, for the brackets of a regular expression; the languages written in it,
# some of them also in others.
_SCRIPTS = {
    "Latin": (
        "A-Za-zªºÀ-ÖØ-öø-ʯʰ-ʸˠ-ˤᴀ-ᶿḀ-ỿⁱⁿₐ-ₜⱠ-ⱿꜢ-ꟿﬀ-ﬆＡ-Ｚａ-ｚ",
        "af an ay az br bs ca cs cy da de en eo es et eu fi fo fr fy ga gd gl gn ha hr ht hu "
        "ia id ie ig io is it jv ku kw la lb li lt lv mg mi ms mt nb nl nn no nv ny oc om pl pt qu "
        "rm rn ro rw se sk sl sm sn so sq sr ss st su sv sw tk tl tn to tr ts uz vi vo wa wo xh yo "
        "zu ast ceb fil",
    ),
    "Arabic": (
        "\u0600-\u06ff\u0750-\u077f\u0870-\u08ff\ufb50-\ufdff\ufe70-\ufefc",
        "ar az fa ha ks ku ms pa ps sd so ug ur uz",
    ),
    "Armenian": ("\u0530-\u058f\ufb13-\ufb17", "hy"),
    "Bengali": ("\u0980-\u09ff", "as bn"),
    "Cyrillic": (
        "\u0400-\u052f\u1c80-\u1c8f\u2de0-\u2dff\ua640-\ua69f",
        "ab az ba be bg bs ce cv kk kv ky mk mn os ru sr tg tk tt uk uz",
    ),
    "Devanagari": ("\u0900-\u097f\ua8e0-\ua8ff", "hi ks mr ne pi sa sd"),
    "Ethiopic": ("\u1200-\u139f\u2d80-\u2ddf\uab00-\uab2f", "am ti"),
    "Georgian": ("\u10a0-\u10ff\u1c90-\u1cbf\u2d00-\u2d2f", "ka"),
    "Greek": ("\u0370-\u03ff\u1f00-\u1fff", "el"),
    "Gujarati": ("\u0a80-\u0aff", "gu"),
    "Gurmukhi": ("\u0a00-\u0a7f", "pa"),
    "Han": (
        "\u2e80-\u2fdf\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003134f",
        "ja ko zh",
    ),
    "Hangul": ("\u1100-\u11ff\u3130-\u318f\uac00-\ud7af", "ko"),
    "Hebrew": ("\u0590-\u05ff\ufb1d-\ufb4f", "he yi"),
    "Kana": ("\u3040-\u30ff\u31f0-\u31ff\uff66-\uff9f", "ja"),
    "Kannada": ("\u0c80-\u0cff", "kn"),
    "Khmer": ("\u1780-\u17ff", "km"),
    "Lao": ("\u0e80-\u0eff", "lo"),
    "Malayalam": ("\u0d00-\u0d7f", "ml"),
    "Mongolian": ("\u1800-\u18af", "mn"),
    "Myanmar": ("\u1000-\u109f\uaa60-\uaa7f", "my"),
    "Odia": ("\u0b00-\u0b7f", "or"),
    "Sinhala": ("\u0d80-\u0dff", "si"),
    "Tamil": ("\u0b80-\u0bff", "ta"),
    "Telugu": ("\u0c00-\u0c7f", "te"),
    "Thaana": ("\u0780-\u07bf", "dv"),
    "Thai": ("\u0e00-\u0e7f", "th"),
    "Tibetan": ("\u0f00-\u0fff", "bo dz"),
}

_LETTERS_A_TO_Z = "abcdefghijklmnopqrstuvwxyz"

# Lower-case letters of native words and common loans.
_ALPHABETS = {
    "cs": _LETTERS_A_TO_Z + "áčďéěíňóřšťúůýž",
    "da": _LETTERS_A_TO_Z + "æøåé",
    "de": _LETTERS_A_TO_Z + "äöüß",
    "en": _LETTERS_A_TO_Z,
    "es": _LETTERS_A_TO_Z + "áéíñóúü",
    "fi": _LETTERS_A_TO_Z + "åäöšž",
    "fr": _LETTERS_A_TO_Z + "àâæçéèêëîïôœùûüÿ",
    "it": _LETTERS_A_TO_Z + "àèéìíîòóùú",
    "nl": _LETTERS_A_TO_Z + "áéëïíóöúü",
    "pl": _LETTERS_A_TO_Z + "ąćęłńóśźż",
    "pt": _LETTERS_A_TO_Z + "àáâãçéêíóôõúü",
    "ro": _LETTERS_A_TO_Z + "ăâîșțşţ",
    "ru": "абвгдеёжзийклмнопрстуфхцчшщъыьэюя",
    "sv": _LETTERS_A_TO_Z + "åäöé",
    "tr": _LETTERS_A_TO_Z + "âçğıîöşûü",
    "uk": "абвгґдеєжзиіїйклмнопрстуфхцчшщьюя",
}

# Fewer words than this, all in Latin letters, may be a name or a product in any language.
_MIN_WORDS_OF_A_SENTENCE = 4


@dataclasses.dataclass(frozen=True)
class ScriptCheck:
    """Decides by its letters whether a text can be in a language.

    `own` finds a letter of the language's scripts, `foreign` one that is neither theirs nor Latin.
    In languages of other scripts Latin letters are ignored: names and code occur everywhere.
    """

    own: re.Pattern[str]
    foreign: re.Pattern[str]
    is_latin: bool

    def is_wrong(self, text: str, num_words: int, min_share: float) -> bool:
        """True if fewer than `min_share` of the letters belong to the language's scripts."""
        if self.is_latin and text.isascii():
            return False
        if not self.foreign.search(text):
            if self.is_latin or num_words < _MIN_WORDS_OF_A_SENTENCE:
                return False
            return self.own.search(text) is None and any(map(str.isalpha, text))
        num_foreign = len(self.foreign.findall(text))
        num_own = len(self.own.findall(text))
        return num_own < min_share * (num_own + num_foreign)


@functools.cache
def script_check(language: str) -> ScriptCheck | None:
    """Returns the check for a language, None if its script is not listed."""
    code = to_iso639_1(language)
    ranges = {script: chars for script, (chars, codes) in _SCRIPTS.items() if code in codes.split()}
    if not ranges:
        return None
    if "_Latn" in language:  # romanized
        ranges["Latin"] = _SCRIPTS["Latin"][0]
    own = "".join(ranges.values())
    # [^\W\d_] is any letter; ranges added inside the brackets are excluded.
    foreign = r"[^\W\d_" + own + _SCRIPTS["Latin"][0] + "]"
    return ScriptCheck(re.compile(f"[{own}]"), re.compile(foreign), "Latin" in ranges)


def alphabet(language: str) -> str | None:
    """Returns the lower-case letters of a language, None if they are not listed."""
    return _ALPHABETS.get(to_iso639_1(language))
