"""fastBPE: words to subwords, by the files of `fast learnbpe` and `fast getvocab`.

LASER's encoder of 2018 was trained on its output. Follows fastBPE's `applybpe`, which differs from
other BPE programs where a subword is missing from the vocabulary.
"""

import functools

# Most words are frequent; large enough for the rare ones of a window as well.
_CACHED_WORDS = 1 << 17

_END = "</w>"
_CONTINUED = "@@"


class FastBPE:
    """Splits words into subwords; all but the last of a word end in `@@`.

    `codes` has `LEFT RIGHT COUNT` per line, in the order of the merges; `vocabulary` `SUBWORD
    COUNT`, "" for no limit. ValueError names the number of a line of another form.
    """

    def __init__(self, codes: str, vocabulary: str = ""):
        pairs = [(left, right) for left, right, _ in _rows(codes, 3, "codes")]
        self._ranks = {pair: rank for rank, pair in enumerate(pairs)}
        self._halves = {left + right: (left, right) for left, right in pairs}
        self.vocabulary = frozenset(word for word, _ in _rows(vocabulary, 2, "vocabulary"))
        self.split = functools.lru_cache(_CACHED_WORDS)(self._split)

    def _split(self, word: str) -> tuple[str, ...]:
        """Splits a word, which must not contain white space."""
        subwords = self._merge([*word[:-1], word[-1] + _END])
        if self.vocabulary:
            last = len(subwords) - 1
            subwords = [
                part
                for number, subword in enumerate(subwords)
                for part in self._limit(subword, final=number == last)
            ]
        return (*(part + _CONTINUED for part in subwords[:-1]), subwords[-1].removesuffix(_END))

    def _merge(self, subwords: list[str]) -> list[str]:
        """Merges neighbors, the pair learned first at each step, until no pair is known."""
        while len(subwords) > 1:
            pairs = set(zip(subwords, subwords[1:]))
            best = min(pairs, key=lambda pair: self._ranks.get(pair, len(self._ranks)))
            if best not in self._ranks:
                break
            merged, position = [], 0
            while position < len(subwords):
                step = 2 if tuple(subwords[position : position + 2]) == best else 1
                merged.append("".join(subwords[position : position + step]))
                position += step
            subwords = merged
        return subwords

    def _limit(self, subword: str, final: bool) -> list[str]:
        """Undoes merges until every part is in the vocabulary or cannot be split."""
        written = subword.removesuffix(_END) if final else subword + _CONTINUED
        if written in self.vocabulary or subword not in self._halves:
            return [subword]
        left, right = self._halves[subword]
        return [*self._limit(left, False), *self._limit(right, final)]


def _rows(text: str, num_fields: int, kind: str) -> list[list[str]]:
    rows = [[field for field in line.split(" ") if field] for line in text.split("\n")]
    if rows and not rows[-1]:
        rows.pop()
    for number, row in enumerate(rows, 1):
        if len(row) != num_fields or not row[-1].strip().lstrip("-").isdigit():
            raise ValueError(
                f"fastBPE {kind}, line {number}: must hold {num_fields} fields, the last a count; "
                f"found {' '.join(row)!r:.60}"
            )
    return rows
