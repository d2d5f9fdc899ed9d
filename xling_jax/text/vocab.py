"""SentencePiece vocabularies: one for all languages of an encoder, trained here or given.

Encoding, mining and document alignment import this module, so it needs only NumPy and
sentencepiece.
"""

import functools
import hashlib
import io
import os
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import sentencepiece

from xling_jax.registry import check_choice
from xling_jax.text.vocabularies import (
    SENTENCEPIECE_FILE,
    Vocabulary,
    load_sentencepiece,
    require_file,
)

# Layout -> special pieces; their ids are their positions. T-LASER and LASER use the order of
# fairseq's dictionaries; the lightweight dual encoder has MASK but no sentence marks; `masked` has
# all of them, for objectives that mix the two families.
SPECIALS = {
    "laser": ("<s>", "<pad>", "</s>", "<unk>"),
    "dual": ("<pad>", "<unk>", "<MASK>"),
    "masked": ("<s>", "<pad>", "</s>", "<unk>", "<MASK>"),
}

MODEL_TYPES = ("bpe", "unigram", "word")

# Unigram training sums floats per thread, so the result depends on the number of threads: a
# constant gives the same model on every machine.
_TRAINING_THREADS = 8

# SentencePiece skips longer lines. Only a guard: training sentences are cleaned before.
_MAX_SENTENCE_BYTES = 16384

# Control characters other than white space, soft hyphens, zero-width and directional marks, tags,
# and lone surrogates, which UTF-8 cannot represent.
_INVISIBLE = re.compile(
    "[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\xad\u061c\u180e\u200b-\u200f\u202a-\u202e"
    "\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f\ud800-\udfff]"
)


def remove_invisible(text: str) -> str:
    """Removes invisible characters, which only split words or hide duplicates.

    Control characters other than white space, zero-width and directional marks, soft hyphens.
    Choice: also the joiners U+200C and U+200D. They mostly steer rendering, and corpora write the
    same word with and without them.
    """
    return text if text.isprintable() else _INVISIBLE.sub("", text)


def normalize_text(text: str, lowercase: bool = True) -> str:
    """Normalizes text before it is hashed, tokenized or embedded.

    Removes invisible characters, lower-cases (as the published models do), applies Unicode NFC, and
    collapses white space, including line breaks and tabs, to single spaces. Idempotent.
    """
    text = remove_invisible(text)
    if lowercase:
        text = text.lower()
    return " ".join(unicodedata.normalize("NFC", text).split())


def text_hash(text: str) -> int:
    """64 bits that are equal for texts which `normalize_text` leaves equal, in their case."""
    content = normalize_text(text, lowercase=False).encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "little")


def normalizer(lowercase: bool = True, moses: bool = False) -> Callable[[str], str]:
    """Returns the function that prepares a text for SentencePiece; see `normalize_text`.

    `moses` normalizes punctuation and splits words as the Moses scripts do, without escaping,
    before the text is lower-cased: the preprocessing of LASER, T-LASER and cT-LASER. Choice: by the
    rules of English for all languages, as in Meta's `laser_encoders`, since an encoder is not told
    the language of a text; the published training data were split by the rules of each language.
    Takes about 0.2 ms a sentence.
    """
    if not moses:
        return functools.partial(normalize_text, lowercase=lowercase)
    words = _moses()
    return lambda text: normalize_text(words(normalize_text(text, lowercase=False)), lowercase)


@functools.cache
def _moses() -> Callable[[str], str]:
    from xling_jax.text.laser_vocab import LaserText

    return LaserText(lowercase=False, moses_tokenizer=True)


class Vocab(Vocabulary):
    """A SentencePiece model, a path or its content, and the preprocessing that it expects.

    For the latter see `normalizer`. `mask_id` is the id of the control piece `<MASK>`, None if
    there is none. OSError if the file cannot be read, ValueError if it is not a SentencePiece
    model.
    """

    FILES = (SENTENCEPIECE_FILE,)

    def __init__(
        self, model: str | os.PathLike[str] | bytes, *, lowercase: bool = True, moses: bool = False
    ):
        given = isinstance(model, bytes)
        self.model_bytes = model if given else Path(model).read_bytes()
        self.files = {SENTENCEPIECE_FILE: self.model_bytes}
        self.lowercase, self.moses = bool(lowercase), bool(moses)
        where = SENTENCEPIECE_FILE if given else os.fspath(model)
        processor = self._processor = load_sentencepiece(self.model_bytes, where)
        self.size = processor.get_piece_size()
        for name in ("bos_id", "pad_id", "eos_id", "unk_id"):
            number = getattr(processor, name)()
            setattr(self, name, None if number < 0 else number)  # -1 for a missing piece
        mask = processor.piece_to_id("<MASK>")
        self.mask_id = mask if processor.is_control(mask) else None

    @classmethod
    def from_files(cls, files: Mapping[str, bytes], options: Mapping[str, Any]) -> Self:
        return cls(require_file(files, SENTENCEPIECE_FILE), **options)

    @property
    def options(self) -> dict[str, Any]:
        return {"lowercase": self.lowercase} | ({"moses": True} if self.moses else {})

    def split(self, texts: Sequence[str], num_threads: int) -> list[list[int]]:
        """See `Vocabulary.split`; texts are prepared by `normalizer`."""
        normalized = [*map(normalizer(self.lowercase, self.moses), texts)]
        if num_threads == 1:  # SentencePiece would start a thread for a list
            return [self._processor.encode(text, out_type=int) for text in normalized]
        return self._processor.encode(normalized, out_type=int, num_threads=num_threads)

    def decode(self, ids: Sequence[int] | np.ndarray) -> str:
        """Joins [length] ids into text without special tokens."""
        return self._processor.decode(np.asarray(ids).tolist())

    def pieces(self) -> list[str]:
        return [self._processor.id_to_piece(i) for i in range(self.size)]

    def is_control(self, number: int) -> bool:
        """True if an id is that of a control piece, which no text has."""
        return self._processor.is_control(number)

    @functools.cached_property
    def fingerprint(self) -> str:
        """Hex digest of the model and its preprocessing: equal fingerprints mean equal ids."""
        digest = hashlib.sha256(self.model_bytes)
        digest.update(f"lowercase={self.lowercase}".encode())
        if self.moses:
            digest.update(b"moses")
        return digest.hexdigest()


def train_vocab(
    sentences: Iterable[str],
    *,
    size: int,
    layout: str = "laser",
    model_type: str = "bpe",
    character_coverage: float = 0.9995,
    lowercase: bool = True,
    moses: bool = False,
    seed: int = 0,
) -> Vocab:
    """Trains a SentencePiece model; the same sentences in the same order give the same bytes.

    Options are those of `corpora.options.VocabOptions`; the layout, a key of `SPECIALS`, fixes the
    ids of the special tokens. Text is normalized here; SentencePiece holds all of it in memory.
    With the type `word`, a run of other words becomes one `unk_id`, and punctuation belongs to the
    word that it touches: "dog" and "dog." are different words. Text in a script without spaces is
    almost all unknown.

    ValueError for an unknown layout or model type, no text, or a size that the text cannot fill or
    that is below its number of characters.
    """
    check_choice("vocab.model_type", model_type, MODEL_TYPES)
    # SentencePiece turns an exception in its input into a RuntimeError with a C++ file name.
    count, failure = 0, None
    normalize = normalizer(lowercase, moses)

    def normalized() -> Iterator[str]:
        nonlocal count, failure
        try:
            for sentence in sentences:
                if text := normalize(sentence):
                    count += 1
                    yield text
        except BaseException as error:  # Ctrl-C as well, which SentencePiece would wrap
            failure = error
            raise

    model = io.BytesIO()
    sentencepiece.set_random_generator_seed(seed & 0xFFFFFFFF)
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=normalized(),
            model_writer=model,
            vocab_size=size,
            model_type=model_type,
            character_coverage=character_coverage,
            num_threads=_TRAINING_THREADS,
            max_sentence_length=_MAX_SENTENCE_BYTES,
            shuffle_input_sentence=False,
            minloglevel=2,
            **_special_arguments(layout),
        )
    except (RuntimeError, ValueError) as error:
        if failure is not None:
            raise failure from None
        raise ValueError(_explain(str(error), size, count)) from error
    return Vocab(model.getvalue(), lowercase=lowercase, moses=moses)


def extended(
    vocab: Vocabulary,
    sentences: Iterable[str],
    *,
    size: int,
    character_coverage: float = 0.9995,
    seed: int = 0,
) -> Vocab:
    """A vocabulary with the pieces that it lacks of one of `size`, trained on sentences.

    Ids below `vocab.size` keep their pieces and scores. The scores of unigram pieces are log
    probabilities, of the new ones on another text: they are shifted by the median difference of the
    pieces that both have. New merges of BPE come after the old ones.

    ValueError for a vocabulary that is not a SentencePiece model, or as `train_vocab`.
    """
    if not isinstance(vocab, Vocab):
        raise ValueError(
            f"vocab.extend={size} needs a SentencePiece model; the vocabulary of the model is "
            f"{type(vocab).__name__}; set it to 0, or begin with a model that xling train made"
        )
    model = parse_sentencepiece(vocab.model_bytes)
    kind = model.trainer_spec.ModelType.Name(model.trainer_spec.model_type).lower()
    arguments = {"model_type": kind, "character_coverage": character_coverage, "seed": seed}
    text = {"lowercase": vocab.lowercase, "moses": vocab.moses}
    try:
        trained = train_vocab(sentences, size=size, layout="dual", **arguments, **text)
    except ValueError as error:
        raise ValueError(str(error).replace("vocab.size", "vocab.extend")) from error
    known = {piece.piece: piece.score for piece in model.pieces}
    found = [
        piece
        for piece in parse_sentencepiece(trained.model_bytes).pieces
        if piece.type == piece.NORMAL
    ]
    shared = [known[piece.piece] - piece.score for piece in found if piece.piece in known]
    shift = min(known.values()) - 1 if kind == "bpe" else float(np.median(shared or [0.0]))
    for piece in found:
        if piece.piece not in known:
            model.pieces.add(piece=piece.piece, score=piece.score + shift)
    model.trainer_spec.vocab_size = len(model.pieces)
    return Vocab(model.SerializeToString(), **text)


def split_pieces(vocab: Vocab, pieces: Sequence[str]) -> list[list[int]]:
    """Splits pieces of other vocabularies, which may lie inside a word, into ids of this one."""
    model = parse_sentencepiece(vocab.model_bytes)
    model.normalizer_spec.add_dummy_prefix = False
    model.normalizer_spec.remove_extra_whitespaces = False
    processor = load_sentencepiece(model.SerializeToString(), SENTENCEPIECE_FILE)
    return processor.encode([piece.replace("\u2581", " ") for piece in pieces], out_type=int)


def parse_sentencepiece(model: bytes) -> Any:
    """The protocol buffer of a SentencePiece model."""
    from sentencepiece import sentencepiece_model_pb2

    return sentencepiece_model_pb2.ModelProto.FromString(model)


def check_layout(vocab: Vocab, layout: str, where: str) -> None:
    """Raises ValueError unless a vocabulary has a layout's special tokens at their ids."""
    check_choice("layout", layout, SPECIALS)
    wanted = SPECIALS[layout]
    ids = {"<s>": vocab.bos_id, "<pad>": vocab.pad_id, "</s>": vocab.eos_id}
    ids |= {"<unk>": vocab.unk_id, "<MASK>": vocab.mask_id}
    found = tuple(ids[piece] for piece in wanted)
    if found != tuple(range(len(wanted))):
        ids = ", ".join(f"{p}={'none' if i is None else i}" for p, i in zip(wanted, found))
        raise ValueError(
            f"{where}: the layout {layout!r} needs {' '.join(wanted)} as ids 0 to "
            f"{len(wanted) - 1}; found {ids}; train it with these ids or leave vocab.model empty"
        )


def _special_arguments(layout: str) -> dict[str, Any]:
    """Arguments of SentencePiece that give the special pieces of a layout their ids."""
    check_choice("layout", layout, SPECIALS)
    ids = {piece: i for i, piece in enumerate(SPECIALS[layout])}
    return {
        "bos_id": ids.get("<s>", -1),
        "pad_id": ids["<pad>"],
        "eos_id": ids.get("</s>", -1),
        "unk_id": ids["<unk>"],
        # Control symbols take the first free ids and are never produced from text.
        "control_symbols": ["<MASK>"] if "<MASK>" in ids else [],
    }


def _explain(message: str, size: int, num_sentences: int) -> str:
    """Translates SentencePiece's training errors to the config key and the way out."""
    if num_sentences == 0 or "sentences_.empty()" in message:
        return "vocab: no text to train SentencePiece on; are all corpora empty after cleaning?"
    limit = re.search(r"value <= (\d+)", message)
    if limit:
        return (
            f"vocab.size={size} is more than {num_sentences} training sentences can fill; "
            f"use at most {limit[1]}, or more text"
        )
    required = re.search(r"required_chars\. \d+ vs (\d+)", message)
    if required:
        return (
            f"vocab.size={size} is smaller than the {required[1]} characters and special tokens "
            "of the text; use more, or a lower vocab.character_coverage"
        )
    return f"vocab: SentencePiece training failed on {num_sentences} sentences: {message}"
