"""The vocabulary of LASER's published encoders: text to ids exactly as their own code does it.

Preprocessed text is split by SentencePiece (LASER2) or fastBPE (LASER, 2018), the pieces are
written one after the other as text, and each word of that text is looked up in a dictionary whose
order and content are not those of the splitter: what is missing there is `<unk>`.
"""

import dataclasses
import functools
import hashlib
import json
from collections.abc import Mapping, Sequence

import numpy as np
import sentencepiece

from xling_jax.text.fastbpe import FastBPE
from xling_jax.text.laser_text import LaserText

DICTIONARY_FILE = "dictionary.json"
SENTENCEPIECE_FILE = "sentencepiece.model"
CODES_FILE = "fastbpe.codes"
VOCABULARY_FILE = "fastbpe.vocab"
FILES = (DICTIONARY_FILE, SENTENCEPIECE_FILE, CODES_FILE, VOCABULARY_FILE)

# LASER's code sets these ids whatever the dictionary says.
SPECIAL_IDS = {"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3}


class LaserVocab:
    """A dictionary with the preprocessing and the splitter it expects.

    It has what `data.vocab.Vocab` has for encoding.

    Args:
        files: contents by name: `dictionary.json` ({piece: id}), and either `sentencepiece.model`
            or `fastbpe.codes` with `fastbpe.vocab`.
        text: the preprocessing.

    Raises:
        ValueError: if a file is missing or broken, naming it.
    """

    bos_id, pad_id, eos_id, unk_id = SPECIAL_IDS.values()

    def __init__(self, files: Mapping[str, bytes], text: LaserText):
        self.files = {name: bytes(content) for name, content in sorted(files.items())}
        self.text = text
        self.dictionary = _read_dictionary(_take(self.files, DICTIONARY_FILE))
        self._processor = self._bpe = None
        if SENTENCEPIECE_FILE in self.files:
            self._processor = _read_sentencepiece(self.files[SENTENCEPIECE_FILE])
        else:
            codes, words = (_decode(self.files, name) for name in (CODES_FILE, VOCABULARY_FILE))
            self._bpe = FastBPE(codes, words)

    def __reduce__(self):
        """Pickles as its files, so that worker processes can have it."""
        return LaserVocab, (self.files, self.text)

    def encode(self, texts: Sequence[str], num_threads: int = -1) -> list[np.ndarray]:
        """Preprocesses texts, splits them and looks the pieces up; adds no special tokens.

        Args:
            texts: the texts; an empty one gives an empty array.
            num_threads: SentencePiece threads; -1 for all cores.

        Returns:
            One [length] int32 array of ids for each text, in order.

        Raises:
            ValueError: if `texts` is a single string, which would be read letter by letter.
        """
        if isinstance(texts, str):
            raise ValueError("texts must be a sequence of strings; found one string, wrap it: [s]")
        lines = [self.text(text) for text in texts]
        if self._processor is not None:
            split = self._processor.encode(lines, out_type=str, num_threads=num_threads)
        else:
            words = ([word for word in line.split(" ") if word] for line in lines)
            split = ([piece for word in row for piece in self._bpe.split(word)] for row in words)
        return [self._look_up(pieces) for pieces in split]

    def encode_flat(
        self, texts: Sequence[str], num_threads: int = -1
    ) -> tuple[np.ndarray, np.ndarray]:
        """The ids of `encode` in one [sum of lengths] array, and the [n] lengths."""
        rows = self.encode(texts, num_threads)
        lengths = np.array([len(row) for row in rows], np.int64)
        return np.concatenate([*rows, np.empty(0, np.int32)]), lengths

    def pieces(self) -> list[str]:
        """Returns the pieces the splitter may produce from text."""
        if self._bpe is not None:
            return sorted(self._bpe.vocabulary)
        processor = self._processor
        special = lambda i: processor.is_control(i) or processor.is_unknown(i)
        ids = range(processor.get_piece_size())
        return [processor.id_to_piece(i) for i in ids if not special(i)]

    @property
    def size(self) -> int:
        """Number of ids, up to the largest of the dictionary."""
        return max(self.dictionary.values()) + 1

    @functools.cached_property
    def fingerprint(self) -> str:
        """Hex digest of the files and of the preprocessing: equal means equal ids."""
        digest = hashlib.sha256(json.dumps(dataclasses.asdict(self.text)).encode())
        for name, content in self.files.items():
            digest.update(f"{name} {len(content)}".encode())
            digest.update(content)
        return digest.hexdigest()

    def _look_up(self, pieces: Sequence[str]) -> np.ndarray:
        # Joined and split again as in LASER: a piece of white space disappears.
        words = " ".join(pieces).split()
        return np.array([self.dictionary.get(word, self.unk_id) for word in words], np.int32)


def dictionary_file(dictionary: Mapping[str, int]) -> bytes:
    """Content of `dictionary.json`; the special tokens are set as LASER's code does."""
    rows = sorted({**dictionary, **SPECIAL_IDS}.items(), key=lambda item: item[1])
    return (json.dumps(dict(rows), indent=0) + "\n").encode()


def _take(files: Mapping[str, bytes], name: str) -> bytes:
    if name not in files:
        raise ValueError(f"{name}: missing; a LASER vocabulary holds it")
    return files[name]


def _decode(files: Mapping[str, bytes], name: str) -> str:
    try:
        return _take(files, name).decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{name}: is not UTF-8 text: {error}") from error


def _read_dictionary(content: bytes) -> dict[str, int]:
    try:
        dictionary = json.loads(content)
    except ValueError as error:
        raise ValueError(f"{DICTIONARY_FILE}: is not valid JSON: {error}") from error
    if not isinstance(dictionary, dict) or not all(
        type(number) is int and number >= 0 for number in dictionary.values()
    ):
        raise ValueError(f"{DICTIONARY_FILE}: must map each piece to its id")
    for piece, number in SPECIAL_IDS.items():
        if dictionary.get(piece) != number:
            raise ValueError(
                f"{DICTIONARY_FILE}: {piece} must have id {number}; "
                f"found {dictionary.get(piece, 'none')}"
            )
    return dictionary


def _read_sentencepiece(content: bytes) -> sentencepiece.SentencePieceProcessor:
    try:
        if not content:  # parses as a model without pieces
            raise RuntimeError("no bytes")
        return sentencepiece.SentencePieceProcessor(model_proto=content)
    except (RuntimeError, ValueError) as error:
        raise ValueError(
            f"{SENTENCEPIECE_FILE}: not a SentencePiece model ({len(content)} bytes)"
        ) from error
