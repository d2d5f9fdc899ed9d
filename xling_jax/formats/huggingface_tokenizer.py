"""From the tokenizer files of a Hugging Face directory to a vocabulary.

tokenizer.json             all but XLM; it alone says how text is split
vocab.json, merges.txt     XLM
tokenizer_config.json      where texts are cut, if it is there
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from xling_jax.files.untrusted import named
from xling_jax.formats.huggingface_files import Settings, read_settings
from xling_jax.formats.huggingface_layouts import Published
from xling_jax.text.huggingface_vocab import (
    MERGES_FILE,
    TOKENIZER_FILE,
    VOCABULARY_FILE,
    HuggingFaceText,
    HuggingFaceVocab,
    import_tokenizers,
    load_tokenizer,
)

_SETTINGS_FILES = ("special_tokens_map.json", "tokenizer_config.json")
# transformers writes 1e30 where a tokenizer has no limit.
_NO_LIMIT = 10**6

# XLM begins with <s> in transformers since 2020, with </s> before that and in training.
_XLM_TOKENS = {"bos_token": "<s>", "sep_token": "</s>"}


def read_tokenizer(
    directory: Path, published: Published, *, prefix: str, language: str, lowercase: bool
) -> tuple[HuggingFaceVocab, int | None]:
    """Reads the tokenizer of a transformer, and its longest input in tokens if it has one.

    `lowercase` applies to all text first, a setting of sentence-transformers. ValueError if files
    are missing or broken; ImportError without `tokenizers` where that is needed.
    """
    settings = Settings(directory / _SETTINGS_FILES[-1], {})
    for name in _SETTINGS_FILES:
        settings.update(read_settings(directory / name, optional=True))
    settings.require({"auto_map": {}})
    counts_padding = published.layout.position and published.unplaced_id is None
    if counts_padding and settings.get("padding_side") == "left":
        raise ValueError(
            f"{settings.path}: padding_side must be right: with absolute positions, vectors would "
            "depend on the longest text of their batch; remove it"
        )
    side = settings.get("truncation_side")
    if side not in ("right", "left", None):
        raise settings.error("truncation_side", "right or left")
    limit = settings.get("model_max_length")
    limit = int(limit) if isinstance(limit, (int, float)) and 2 < limit < _NO_LIMIT else None
    if published.model_type == "xlm" and (directory / VOCABULARY_FILE).is_file():
        own = {"prefix": prefix, "language": language, "truncation_side": side or "right"}
        return _xlm_vocab(directory, settings, lowercase, **own), limit
    path = directory / TOKENIZER_FILE
    if not path.is_file():
        raise ValueError(
            f"{path}: missing; where transformers is installed it is made by: python -c "
            "\"from transformers import AutoTokenizer as T; T.from_pretrained('DIR')"
            ".save_pretrained('DIR')\""
        )
    tokenizer = load_tokenizer(path.read_bytes(), str(path))
    if side is None and tokenizer.truncation:
        side = tokenizer.truncation["direction"]
    tokenizer.no_padding()  # published ones may pad all texts to one length
    tokenizer.no_truncation()
    if lowercase:
        normalizers = import_tokenizers().normalizers
        steps = [normalizers.Lowercase(), tokenizer.normalizer]
        tokenizer.normalizer = normalizers.Sequence([step for step in steps if step is not None])
    first, last = _ends(tokenizer, path, published.layout.family == "rotary")
    _check_rows(tokenizer, (first, last), published, path)
    # An id of its own: what is padding to the original may be written out in a text, and Qwen3's is
    # the token behind one.
    pad_id = max(tokenizer.get_vocab().values()) + 1
    text = HuggingFaceText(first, last, pad_id, prefix, truncation_side=side or "right")
    with named(directory):
        return HuggingFaceVocab({TOKENIZER_FILE: tokenizer.to_str().encode()}, text), limit


def _ends(tokenizer: Any, where: Path, may_lack: bool) -> tuple[int | None, int | None]:
    """Ids of the special tokens in front of and behind a text; None where there `may_lack` one."""
    encoded = tokenizer.encode("a")
    special = encoded.special_tokens_mask or [0]
    first, last = special[0], special[-1]
    if sum(special) != first + last or not (may_lack or first and last):
        raise ValueError(
            f"{where}: its post_processor must put one special token in front of a text and one "
            f"behind; found {' '.join(encoded.tokens):.60} for 'a'"
        )
    return encoded.ids[0] if first else None, encoded.ids[-1] if last else None


def _check_rows(
    tokenizer: Any, ends: tuple[int | None, int | None], published: Published, where: Path
) -> None:
    """Raises ValueError if the model's table has no rows for the tokenizer's pieces or `ends`."""
    # Tokens that were added to the pieces may have none: Gemma's table has none for images.
    pieces = tokenizer.get_vocab(with_added_tokens=False).values()
    needed = max([*pieces, *(number for number in ends if number is not None)], default=-1) + 1
    if needed > published.vocab_size:
        raise ValueError(
            f"{where.parent}: the tokenizer has {needed} tokens, the model's table "
            f"{published.vocab_size} rows; the files are from different models"
        )


def _xlm_vocab(
    directory: Path, settings: Mapping[str, Any], lowercase: bool, **text: Any
) -> HuggingFaceVocab:
    files = {}
    for name in (VOCABULARY_FILE, MERGES_FILE):
        path = directory / name
        if not path.is_file():
            raise ValueError(f"{path}: missing; XLM's tokenizer is {VOCABULARY_FILE} and {name}")
        files[name] = path.read_bytes()
    path = directory / VOCABULARY_FILE
    vocabulary, ids = read_settings(path), []
    for key, default in _XLM_TOKENS.items():
        token = settings.get(key) or default
        token = token.get("content") if isinstance(token, Mapping) else token
        ids.append(vocabulary.get(token) if isinstance(token, str) else None)
        if type(ids[-1]) is not int:
            raise ValueError(f"{path}: {key} {token!r:.60} is not in the vocabulary")
    text = HuggingFaceText(
        *ids,
        pad_id=max(vocabulary.values()) + 1,
        lowercase=lowercase or bool(settings.get("do_lowercase_and_remove_accent", True)),
        **text,
    )
    with named(directory):
        return HuggingFaceVocab(files, text)
