"""Our SentencePiece vocabularies as a `tokenizer.json`, with the same tokens for any text.

That is the format of the `tokenizers` library, which transformers, sentence-transformers, model2vec
and servers without Python read. What it cannot say is refused. Known to differ are only letters of
mathematical alphabets, superscripts and half-width Hangul letters with a combining mark or vowel
behind them: SentencePiece composes the two.
"""

import functools
import itertools
import sys
from collections.abc import Sequence
from typing import Any

from xling_jax.text.huggingface_vocab import (
    TOKENIZER_FILE,
    HuggingFaceVocab,
    import_tokenizers,
    load_tokenizer,
)
from xling_jax.text.vocab import Vocab, parse_sentencepiece, remove_invisible
from xling_jax.text.vocabularies import Vocabulary

NO_LIMIT = 1_000_000  # tokens, of encoders that cut no text
SPACE = "▁"  # how SentencePiece writes it

# Python lower-cases a capital sigma at the end of a word to the final form; the library looks at
# one character at a time.
_FINAL_SIGMA = r"(?<=\p{Cased}\p{Case_Ignorable}{0,8})Σ(?!\p{Case_Ignorable}*\p{Cased})"

_BEFORE_MARK = r"(?=\p{M})"
_APART = "\x01"  # none is left in a text


def tokenizer_json(vocab: Vocabulary, where: str = "vocabulary") -> str:
    """Returns the content of a `tokenizer.json` that splits text as a vocabulary does.

    It adds no special tokens around a text. Special tokens written out in a text are text, as in
    the vocabulary, so none of them is among the `added_tokens`: of a unigram vocabulary they are
    named with a space in front, which no text can contain at that point. The file of a published
    tokenizer is returned as it is. ValueError if there is no such form of the vocabulary.
    """
    if isinstance(vocab, HuggingFaceVocab) and TOKENIZER_FILE in vocab.files:
        return vocab.files[TOKENIZER_FILE].decode("utf-8")
    if not isinstance(vocab, Vocab):
        problem = f"a {type(vocab).__name__} of more than one dictionary"
    elif vocab.moses:
        problem = "the rules of Moses (vocab.moses=True)"
    else:
        proto = parse_sentencepiece(vocab.model_bytes)
        kind = proto.trainer_spec.ModelType.Name(proto.trainer_spec.model_type).lower()
        problem = "" if kind in ("unigram", "bpe") else f"vocab.model_type={kind}"
        problem = problem or ", ".join(unusual_settings(proto))
    if problem:
        raise ValueError(
            f"{where}: {TOKENIZER_FILE} has no form for {problem}; use --to onnx, which keeps the "
            "files of the vocabulary as they are"
        )
    tokenizers = import_tokenizers()
    tokenizer = tokenizers.Tokenizer(_model(proto))
    tokenizer.normalizer = _normalizer(proto, vocab.lowercase)
    tokenizer.pre_tokenizer = _pre_tokenizer(proto)
    tokenizer.decoder = tokenizers.decoders.Metaspace(SPACE, "always")
    return tokenizer.to_str(pretty=False)


def with_specials(
    content: str,
    vocab: Vocabulary,
    first: Sequence[int],
    last: Sequence[int],
    max_length_tokens: int,
    pad_id: int | None = None,
) -> str:
    """Returns a `tokenizer.json` that also adds special tokens, cuts and pads as an encoder does.

    `first` and `last` are ids of the special tokens around a text. Padding, by default with the
    vocabulary's, is on the right, to the longest text of a batch. Errors as `cut_at`.
    """
    tokenizer = load_tokenizer(content.encode(), TOKENIZER_FILE)
    name = tokenizer.id_to_token
    around = [(name(number), number) for number in dict.fromkeys([*first, *last])]
    # With none, this replaces what a published tokenizer would add.
    tokenizer.post_processor = import_tokenizers().processors.TemplateProcessing(
        single=[*map(name, first), "$A", *map(name, last)], special_tokens=around
    )
    limit = cut_at(vocab, tokenizer, max_length_tokens)
    tokenizer.enable_truncation(limit, direction=vocab.truncation_side)
    # Padding of its own has no name in a published tokenizer.
    pad_id = vocab.pad_id if pad_id is None else pad_id
    tokenizer.enable_padding(pad_id=pad_id, pad_token=name(pad_id) or "<padding>")
    return tokenizer.to_str(pretty=False)


def cut_at(
    vocab: Vocabulary, tokenizer: Any, max_length_tokens: int, where: str = "vocabulary"
) -> int:
    """Returns where a tokenizer has to cut, once, for a vocabulary that may cut before its encoder.

    ValueError if the vocabulary drops tokens and the encoder cuts after that.
    """
    if not isinstance(vocab, HuggingFaceVocab) or not vocab.text.truncates:
        return max_length_tokens
    own = tokenizer.truncation["max_length"] if tokenizer.truncation else NO_LIMIT
    if max_length_tokens < own and tokenizer.id_to_token(vocab.pad_id) is not None:
        raise ValueError(
            f"{where}: cuts texts at {max_length_tokens} tokens after unknown ones are dropped, "
            f"and a tokenizer cuts first; use --to onnx, or convert the original again with "
            f"--max-length-tokens {max_length_tokens}"
        )
    return min(max_length_tokens, own)


def unusual_settings(proto: Any) -> list[str]:
    """Names the settings of a SentencePiece model that only SentencePiece itself follows."""
    trainer, normalizer = proto.trainer_spec, proto.normalizer_spec
    types = {piece.type for piece in proto.pieces}
    found = {
        "byte_fallback": trainer.byte_fallback,
        "treat_whitespace_as_suffix": trainer.treat_whitespace_as_suffix,
        "user_defined_symbols": proto.SentencePiece.USER_DEFINED in types,
        "unused pieces": proto.SentencePiece.UNUSED in types,
        "no dummy prefix": not normalizer.add_dummy_prefix,
        "kept white space": not normalizer.remove_extra_whitespaces,
        "unescaped white space": not normalizer.escape_whitespaces,
    }
    return [name for name, is_set in found.items() if is_set]


def _model(proto: Any) -> Any:
    models = import_tokenizers().models
    normal = [piece.type == piece.NORMAL for piece in proto.pieces]
    unknown = next(i for i, piece in enumerate(proto.pieces) if piece.type == piece.UNKNOWN)
    trainer = proto.trainer_spec
    if trainer.model_type == trainer.UNIGRAM:
        # The penalty of unknown characters is relative to the lowest score.
        lowest = min(piece.score for piece, is_normal in zip(proto.pieces, normal) if is_normal)
        pieces = [
            (piece.piece, piece.score) if is_normal else (f" {piece.piece}", lowest)
            for piece, is_normal in zip(proto.pieces, normal)
        ]
        return models.Unigram(pieces, unk_id=unknown, byte_fallback=False)
    ids = {piece.piece: i for i, piece in enumerate(proto.pieces)}
    known = {piece.piece for piece, is_normal in zip(proto.pieces, normal) if is_normal}
    # Any two pieces whose concatenation is a piece may be merged, those of the best score first.
    merges = [
        (left, right)
        for piece in sorted(known, key=lambda piece: (-proto.pieces[ids[piece]].score, ids[piece]))
        for left, right in ((piece[:i], piece[i:]) for i in range(1, len(piece)))
        if left in known and right in known
    ]
    unk = proto.pieces[unknown].piece
    return models.BPE(ids, merges, unk_token=unk, fuse_unk=True, byte_fallback=False)


def _normalizer(proto: Any, lowercase: bool) -> Any:
    """`text.vocab.normalize_text`, then the normalization of SentencePiece and its spaces."""
    tokenizers = import_tokenizers()
    steps, regex = tokenizers.normalizers, tokenizers.Regex
    spaces = [steps.Replace(regex(" {2,}"), " "), steps.Strip()]
    invisible, white = _classes()
    chain = [steps.Replace(regex(invisible), "")]
    if lowercase:
        chain += [steps.Replace(regex(_FINAL_SIGMA), "ς"), steps.Lowercase()]
    chain += [steps.NFC(), steps.Replace(regex(white), " ")]
    if charsmap := proto.normalizer_spec.precompiled_charsmap:
        # The library drops a mark on a character that has a rule; apart from it, it is kept.
        chain += [*spaces, steps.Replace(regex(_BEFORE_MARK), _APART)]
        chain += [steps.Precompiled(charsmap), steps.Replace(_APART, "")]
    chain += [*spaces, steps.Prepend(SPACE), steps.Replace(" ", SPACE)]
    return steps.Sequence(chain)


def _pre_tokenizer(proto: Any) -> Any:
    """Splits into words, which are remembered, where no piece spans two of them."""
    pieces = [piece.piece for piece in proto.pieces if piece.type == piece.NORMAL]
    spans = any(SPACE in piece[1:] for piece in pieces)
    if spans or SPACE not in pieces:
        return None
    return import_tokenizers().pre_tokenizers.Split(SPACE, "merged_with_next")


@functools.cache
def _classes() -> tuple[str, str]:
    """Regular expressions of the characters that are removed, and of those that are white space."""
    # All but the surrogates, which the library cannot represent.
    code_points = [*range(0xD800), *range(0xE000, sys.maxunicode + 1)]
    invisible = [code for code in code_points if not remove_invisible(chr(code))]
    white = [code for code in code_points if chr(code).isspace()]
    return _character_class(invisible), _character_class(white)


def _character_class(code_points: Sequence[int]) -> str:
    """A regular expression of the characters with these ascending code points."""
    runs = itertools.groupby(enumerate(code_points), lambda item: item[1] - item[0])
    ranges = ([number for _, number in run] for _, run in runs)
    return "[" + "".join(rf"\x{{{run[0]:x}}}-\x{{{run[-1]:x}}}" for run in ranges) + "]"
