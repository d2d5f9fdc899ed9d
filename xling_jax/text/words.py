"""Words of a text in any script, without a tokenizer."""

import re

# Scripts without spaces. Their mean word lengths are about two characters in Chinese and Japanese,
# and five in Thai, Lao, Burmese and Khmer.
_CHINESE = "[\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]"
_THAI = "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff]"
_SPACELESS = re.compile(f"{_CHINESE[:-1]}{_THAI[1:]}")
_SPACELESS_WORD = re.compile(f"{_CHINESE}{{1,2}}|{_THAI}{{1,5}}")
# A word with hyphens, points and commas inside and a final apostrophe, or one punctuation mark, as
# the Moses tokenizer splits text. The ranges are combining marks, which \w does not match.
_WORD = re.compile(
    "[\\w\u0300-\u036f\u0591-\u05c7\u064b-\u065f\u0900-\u0dff]+"
    "(?:[-.,]\\w[\\w\u0300-\u036f\u0900-\u0dff]*)*['’]?|[^\\w\\s]"
)


def count_words(text: str) -> int:
    """Counts words and punctuation marks, approximately as the Moses tokenizer splits text.

    The published length filter ran on tokenized text. In scripts without spaces the count is
    estimated from the mean word length.
    """
    num_spaceless = 0
    if not text.isascii() and _SPACELESS.search(text):
        text, num_spaceless = _SPACELESS_WORD.subn(" ", text)
    return num_spaceless + len(_WORD.findall(text))
