"""Text to token ids: one SentencePiece model for all languages, and the text it is given.

The room for training, loading and applying a vocabulary. Special tokens have ids here but are never
put around a sentence here: each model family does that for itself. Encoding, mining and document
work import this module, so it needs numpy and sentencepiece only.
"""

import functools
import hashlib
import io
import itertools
import os
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import sentencepiece

from xling_jax.files.whole import write_whole

# Layout -> the special pieces, whose ids are their positions. T-LASER and LASER put them where
# fairseq's dictionaries do; the lightweight dual encoder has no sentence marks and one MASK;
# `masked` has both, for objectives that mix the two families.
SPECIALS = {
    "laser": ("<s>", "<pad>", "</s>", "<unk>"),
    "dual": ("<pad>", "<unk>", "<MASK>"),
    "masked": ("<s>", "<pad>", "</s>", "<unk>", "<MASK>"),
}

MODEL_TYPES = ("bpe", "unigram", "word")

# Unigram training adds floats thread by thread, so the pieces depend on the number of threads.
# A constant keeps the model the same on every machine.
_TRAINING_THREADS = 8

# SentencePiece skips longer lines. Sentences that reach it are cleaned, so this is only a guard.
_MAX_SENTENCE_BYTES = 16384

# Control characters that are not white space, soft hyphen, zero-width and directional marks, tags,
# and lone surrogates, which cannot be written as UTF-8.
_INVISIBLE = re.compile(
    "[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\xad\u061c\u180e\u200b-\u200f\u202a-\u202e"
    "\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f\ud800-\udfff]"
)


def remove_invisible(text: str) -> str:
    """Removes characters that show nothing and only split words or hide copies.

    Control characters other than white space, zero-width and directional marks, soft hyphens.
    Choice: the joiners U+200C and U+200D go too; they mostly steer rendering, and corpora write
    the same word with and without them.
    """
    return text if text.isprintable() else _INVISIBLE.sub("", text)


def normalize_text(text: str, lowercase: bool = True) -> str:
    """Brings text into the one form that is hashed, tokenised and embedded.

    Invisible characters out, optional lower case, Unicode NFC, white space (line breaks and tabs
    included) collapsed to single spaces and stripped. Applying it twice changes nothing.

    Args:
        text: any string.
        lowercase: whether case is dropped, as the published models do.

    Returns:
        The normalised text, possibly empty.
    """
    text = remove_invisible(text)
    if lowercase:
        text = text.lower()
    return " ".join(unicodedata.normalize("NFC", text).split())


class Vocab:
    """A SentencePiece model with the preprocessing it expects.

    Args:
        model: path of a `sentencepiece.model` file, or its bytes.
        lowercase: whether texts are lower-cased before they are split into pieces.

    Attributes:
        model_bytes: the serialised model.
        lowercase: as given.

    Raises:
        OSError: if the file cannot be read.
        ValueError: if it is no SentencePiece model.
    """

    def __init__(self, model: str | os.PathLike[str] | bytes, *, lowercase: bool = True):
        where = "the given bytes" if isinstance(model, bytes) else os.fspath(model)
        self.model_bytes = model if isinstance(model, bytes) else Path(model).read_bytes()
        self.lowercase = bool(lowercase)
        try:
            # An empty message parses as a model without pieces and fails only when it is used.
            if not self.model_bytes:
                raise RuntimeError("no bytes")
            self._processor = sentencepiece.SentencePieceProcessor(model_proto=self.model_bytes)
        except (RuntimeError, ValueError) as error:
            raise ValueError(
                f"{where}: not a SentencePiece model ({len(self.model_bytes)} bytes); train one "
                "with `xling prepare` or give the `.model` file that spm_train wrote"
            ) from error

    def __reduce__(self):
        """Pickles as bytes, so that worker processes need no file."""
        return functools.partial(Vocab, lowercase=self.lowercase), (self.model_bytes,)

    def encode(self, texts: Sequence[str], num_threads: int = -1) -> list[np.ndarray]:
        """Normalises texts and splits them into pieces; adds no special tokens.

        Args:
            texts: the texts; an empty one gives an empty array.
            num_threads: SentencePiece threads; -1 for all cores.

        Returns:
            One [length] int32 array of ids for each text, in order.

        Raises:
            ValueError: if `texts` is a single string, which would be read letter by letter.
        """
        return [np.asarray(row, np.int32) for row in self._split(texts, num_threads)]

    def encode_flat(
        self, texts: Sequence[str], num_threads: int = -1
    ) -> tuple[np.ndarray, np.ndarray]:
        """The ids of `encode` in one array, which spares an array a text.

        Args and Raises: as `encode`.

        Returns:
            ids: [sum of lengths] int32, text after text.
            lengths: [n] int64.
        """
        rows = self._split(texts, num_threads)
        lengths = np.fromiter(map(len, rows), np.int64, len(rows))
        ids = itertools.chain.from_iterable(rows)
        return np.fromiter(ids, np.int32, int(lengths.sum())), lengths

    def _split(self, texts: Sequence[str], num_threads: int) -> list[list[int]]:
        if isinstance(texts, str):
            raise ValueError("texts must be a sequence of strings; found one string, wrap it: [s]")
        normalized = [normalize_text(text, self.lowercase) for text in texts]
        return self._processor.encode(normalized, out_type=int, num_threads=num_threads)

    def decode(self, ids: Sequence[int] | np.ndarray) -> str:
        """Joins the pieces of [length] ids back into text; specials come out as nothing.

        Raises:
            ValueError: if an id is outside the vocabulary.
        """
        ids = np.asarray(ids, np.int64)
        if ids.size and (ids.min() < 0 or ids.max() >= self.size):
            raise ValueError(
                f"ids must be in [0, {self.size}); found {ids.min()} to {ids.max()}: "
                "were they made with another vocabulary?"
            )
        return self._processor.decode(ids.tolist())

    @property
    def size(self) -> int:
        """Number of pieces, specials included, hardware padding not."""
        return self._processor.get_piece_size()

    @property
    def pad_id(self) -> int | None:
        """Id of the padding piece, None if the model has none."""
        return _present(self._processor.pad_id())

    @property
    def bos_id(self) -> int | None:
        """Id of the begin-of-sentence piece, None if the model has none."""
        return _present(self._processor.bos_id())

    @property
    def eos_id(self) -> int | None:
        """Id of the end-of-sentence piece, None if the model has none."""
        return _present(self._processor.eos_id())

    @property
    def unk_id(self) -> int:
        """Id of the unknown piece."""
        return self._processor.unk_id()

    @property
    def mask_id(self) -> int | None:
        """Id of the control piece `<MASK>`, None if the model has none."""
        mask = self._processor.piece_to_id("<MASK>")
        return mask if self._processor.is_control(mask) else None

    def pieces(self) -> list[str]:
        """Returns all pieces in the order of their ids."""
        return [self._processor.id_to_piece(i) for i in range(self.size)]

    @functools.cached_property
    def fingerprint(self) -> str:
        """Hex digest of the model's bytes and of the preprocessing: equal means equal ids."""
        digest = hashlib.sha256(self.model_bytes)
        digest.update(f"lowercase={self.lowercase}".encode())
        return digest.hexdigest()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the model to a file, whole or not at all."""
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, self.model_bytes)


def train_vocab(
    sentences: Iterable[str],
    path: str | os.PathLike[str] | None = None,
    *,
    size: int,
    layout: str = "laser",
    model_type: str = "bpe",
    character_coverage: float = 0.9995,
    lowercase: bool = True,
    seed: int = 0,
    num_threads: int = _TRAINING_THREADS,
) -> Vocab:
    """Trains a SentencePiece model; the same sentences in the same order give the same bytes.

    Args:
        sentences: training text, normalised here; SentencePiece holds all of it in memory.
        path: file to write the model to; None writes nothing.
        size: number of pieces, specials included.
        layout: key of `SPECIALS`; fixes the ids of the special tokens.
        model_type: `bpe` as T-LASER, `unigram`, or `word`: the most frequent words between white
            space, as the similarity-loss model. With `word` a run of other words becomes one
            `unk_id`, whatever their letters, and punctuation belongs to the word it touches: "dog"
            and "dog." are two words. Text of a script without spaces is nearly all unknown.
        character_coverage: share of the text's characters that get a piece of their own.
        lowercase: whether the text is lower-cased, here and at every later use.
        seed: of SentencePiece's own random numbers.
        num_threads: part of the result for `unigram`, so not the number of cores by default.

    Returns:
        The trained vocabulary.

    Raises:
        ValueError: for an unknown layout or model type, no text, or a size that the text cannot
            fill or that is below its number of characters.
        OSError: if `path` cannot be written.
    """
    if model_type not in MODEL_TYPES:
        raise ValueError(
            f"vocab.model_type must be one of {', '.join(MODEL_TYPES)}; found {model_type!r}"
        )
    normalized = _SentenceSource(sentences, lowercase)
    model = io.BytesIO()
    sentencepiece.set_random_generator_seed(seed & 0xFFFFFFFF)
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(normalized),
            model_writer=model,
            vocab_size=size,
            model_type=model_type,
            character_coverage=character_coverage,
            num_threads=num_threads,
            max_sentence_length=_MAX_SENTENCE_BYTES,
            shuffle_input_sentence=False,
            minloglevel=2,
            **_special_arguments(layout),
        )
    except (RuntimeError, ValueError) as error:
        if normalized.error is not None:
            raise normalized.error from None
        raise ValueError(_explain(str(error), size, normalized.count)) from error
    vocab = Vocab(model.getvalue(), lowercase=lowercase)
    if path is not None:
        vocab.save(path)
    return vocab


def check_layout(vocab: Vocab, layout: str, where: str) -> None:
    """Checks that a vocabulary has a layout's special tokens at their ids.

    Args:
        vocab: the vocabulary, often one the user brought.
        layout: key of `SPECIALS`.
        where: what to call the vocabulary in the message.

    Raises:
        ValueError: if a special token is missing or has another id.
    """
    wanted = _layout(layout)
    ids = {
        "<s>": vocab.bos_id,
        "<pad>": vocab.pad_id,
        "</s>": vocab.eos_id,
        "<unk>": vocab.unk_id,
        "<MASK>": vocab.mask_id,
    }
    found = tuple(ids[piece] for piece in wanted)
    if found != tuple(range(len(wanted))):
        ids = ", ".join(f"{p}={'none' if i is None else i}" for p, i in zip(wanted, found))
        raise ValueError(
            f"{where}: the layout {layout!r} needs {' '.join(wanted)} as ids 0 to "
            f"{len(wanted) - 1}; found {ids}; train it with those ids or leave vocab.model empty"
        )


def _present(special_id: int) -> int | None:
    """SentencePiece says -1 for a special token that a model does not have."""
    return None if special_id < 0 else special_id


def _layout(layout: str) -> tuple[str, ...]:
    if layout not in SPECIALS:
        raise ValueError(f"layout must be one of {', '.join(SPECIALS)}; found {layout!r}")
    return SPECIALS[layout]


def _special_arguments(layout: str) -> dict:
    """SentencePiece arguments that give a layout's special pieces their ids."""
    ids = {piece: i for i, piece in enumerate(_layout(layout))}
    return {
        "bos_id": ids.get("<s>", -1),
        "pad_id": ids["<pad>"],
        "eos_id": ids.get("</s>", -1),
        "unk_id": ids["<unk>"],
        # Control symbols take the first free ids, and are never produced from text.
        "control_symbols": ["<MASK>"] if "<MASK>" in ids else [],
    }


class _SentenceSource:
    """Normalised non-empty sentences; keeps their number and the error that ended them.

    SentencePiece turns an exception of its input into a RuntimeError with a C++ file name.
    """

    def __init__(self, sentences: Iterable[str], lowercase: bool):
        self._sentences, self._lowercase = sentences, lowercase
        self.count = 0
        self.error: Exception | None = None

    def __iter__(self) -> Iterator[str]:
        try:
            for sentence in self._sentences:
                text = normalize_text(sentence, self._lowercase)
                if text:
                    self.count += 1
                    yield text
        except Exception as error:
            self.error = error
            raise


def _explain(message: str, size: int, num_sentences: int) -> str:
    """Turns SentencePiece's training errors into the config key and the way out."""
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
