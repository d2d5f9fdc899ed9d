"""Vocabularies of LASER's published encoders: ids exactly as in LASER's code.

Preprocessed text is split by SentencePiece (LASER2) or fastBPE (LASER, 2018). The pieces are joined
to text, and each word of that text is looked up in a dictionary whose order and content differ from
those of the splitter; missing words are `<unk>`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from xling_jax.text.fastbpe import FastBPE
from xling_jax.text.laser_text import LaserText
from xling_jax.text.vocab import SENTENCEPIECE_FILE, load_sentencepiece
from xling_jax.text.vocabularies import Vocabulary, decode_file, in_order, read_dictionary

DICTIONARY_FILE = "dictionary.json"
CODES_FILE = "fastbpe.codes"
VOCABULARY_FILE = "fastbpe.vocab"

# LASER's code sets these ids whatever the dictionary says.
SPECIAL_IDS = {"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3}


class LaserVocab(Vocabulary):
    """A dictionary with its preprocessing and its splitter.

    Args:
        files: `dictionary.json` ({piece: id}), and either `sentencepiece.model` or `fastbpe.codes`
            with `fastbpe.vocab`.
        text: the preprocessing.

    Attributes:
        dictionary: {piece: id}.

    Raises:
        ValueError: if a file is missing or broken, naming it.
    """

    FILES = (DICTIONARY_FILE, SENTENCEPIECE_FILE, CODES_FILE, VOCABULARY_FILE)
    TEXT = LaserText
    bos_id, pad_id, eos_id, unk_id = SPECIAL_IDS.values()

    def __init__(self, files: Mapping[str, bytes], text: LaserText):
        self.files = dict(sorted(files.items()))
        self.text, self.lowercase = text, text.lowercase
        self.dictionary = read_dictionary(files, DICTIONARY_FILE)
        for piece, number in SPECIAL_IDS.items():
            if self.dictionary.get(piece) != number:
                raise ValueError(
                    f"{DICTIONARY_FILE}: {piece} must have id {number}; "
                    f"found {self.dictionary.get(piece, 'none')}"
                )
        self.size = max(self.dictionary.values()) + 1
        self._processor = self._bpe = None
        if SENTENCEPIECE_FILE in files:
            self._processor = load_sentencepiece(files[SENTENCEPIECE_FILE], SENTENCEPIECE_FILE)
        else:
            self._bpe = FastBPE(decode_file(files, CODES_FILE), decode_file(files, VOCABULARY_FILE))

    def split(self, texts: Sequence[str], num_threads: int) -> list[list[int]]:
        """See `Vocabulary.split`."""
        lines = [self.text(text) for text in texts]
        if self._processor is not None:
            rows = self._processor.encode(lines, out_type=str, num_threads=num_threads)
        else:
            rows = (
                [piece for word in line.split(" ") if word for piece in self._bpe.split(word)]
                for line in lines
            )
        get, unknown = self.dictionary.get, self.unk_id
        # Joined and split again as in LASER: pieces of white space disappear.
        return [[get(word, unknown) for word in " ".join(row).split()] for row in rows]

    def pieces(self) -> list[str]:
        """See `Vocabulary.pieces`."""
        return in_order(self.dictionary)

    def splitter_pieces(self) -> list[str]:
        """Returns the pieces that the splitter can produce from text."""
        if self._bpe is not None:
            return sorted(self._bpe.vocabulary)
        processor = self._processor
        ids = range(processor.get_piece_size())
        special = lambda i: processor.is_control(i) or processor.is_unknown(i)
        return [processor.id_to_piece(i) for i in ids if not special(i)]


def dictionary_file(dictionary: Mapping[str, int]) -> bytes:
    """Returns the content of `dictionary.json`, with the special tokens as in LASER's code."""
    rows = sorted({**dictionary, **SPECIAL_IDS}.items(), key=lambda item: item[1])
    return (json.dumps(dict(rows), indent=0) + "\n").encode()
