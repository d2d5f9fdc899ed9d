"""From the tokenizer files of a Hugging Face directory to a vocabulary.

tokenizer.json                     all but XLM
vocab.json, merges.txt             XLM
tokenizer_config.json, special_tokens_map.json    settings, where they are there
"""

import base64
import functools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from xling_jax.files.untrusted import named
from xling_jax.formats.huggingface_files import CONFIG_FILE, Settings, read_settings
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

_SWITCHES = {"tokenize_chinese_chars", "strip_accents", "do_lower_case", "add_prefix_space"}
# Switches in spite of their names; transformers does without them where there is a tokenizer.json.
_IGNORED = {"add_bos_token", "add_eos_token"}
_SETTINGS_FILES = ("special_tokens_map.json", "tokenizer_config.json")
# Key of tokenizer_config.json -> the only supported value.
_REQUIRED = {"split_special_tokens": False, "auto_map": {}}
# Classes of transformers that follow tokenizer.json alone, special tokens included.
_PLAIN_CLASSES = ("PreTrainedTokenizer", "TokenizersBackend")
# Classes that follow tokenizer_config.json and their defaults, whatever tokenizer.json says.
_BERT_CLASSES = ("BertTokenizer", "DistilBertTokenizer", "ElectraTokenizer")
# Field of their normalizer -> key and default.
_BERT_SWITCHES: dict[str, tuple[str, bool | None]] = {
    "lowercase": ("do_lower_case", True),
    "strip_accents": ("strip_accents", None),
    "handle_chinese_chars": ("tokenize_chinese_chars", True),
}
# Whether a class puts a space in front of a text if tokenizer_config.json does not say.
_ADD_SPACE = {"RobertaTokenizer": False, "XLMRobertaTokenizer": True, "CamembertTokenizer": True}
# Class of a kind where no file names one.
_CLASSES = {"bert": "BertTokenizer", "distilbert": "BertTokenizer"}
_CLASSES |= {"roberta": "RobertaTokenizer", "camembert": "CamembertTokenizer"}
_CLASSES |= {"xlm-roberta": "XLMRobertaTokenizer"}

# transformers writes 1e30 where a tokenizer has no limit.
_NO_LIMIT = 10**6

# Kinds whose tokenizers put around a text what tokenizer.json says, none where it says nothing.
_AS_IN_FILE = ("gemma3_text", "modernbert", "qwen3")

# XLM begins with <s> in transformers since 2020, with </s> before that and in training.
_XLM_TOKENS = {"bos_token": "<s>", "sep_token": "</s>"}


def read_tokenizer(
    directory: Path, published: Published, *, prefix: str, language: str, lowercase: bool
) -> tuple[HuggingFaceVocab, int | None]:
    """Reads the tokenizer of a transformer, and its longest input in tokens if it has one.

    `lowercase` applies to all text first, a setting of sentence-transformers. ValueError if files
    are missing or broken; ImportError without `tokenizers` where that is needed.
    """
    settings = _read_settings(directory)
    settings["tokenizer_class"] = _tokenizer_class(directory, published, settings)
    settings.require(_REQUIRED)
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
    tokenizer = _tokenizer(directory, settings)
    if side is None and tokenizer.truncation:
        side = tokenizer.truncation["direction"]
    tokenizer.no_padding()  # published ones may pad all texts to one length
    tokenizer.no_truncation()
    if lowercase:
        normalizers = import_tokenizers().normalizers
        steps = [normalizers.Lowercase(), tokenizer.normalizer]
        tokenizer.normalizer = normalizers.Sequence([step for step in steps if step is not None])
    where = directory / TOKENIZER_FILE
    first, last = _ends(tokenizer, settings, where, published.model_type in _AS_IN_FILE)
    _check_rows(tokenizer, (first, last), published, where)
    # An id of its own: what is padding to the original may be written out in a text, and Qwen3's is
    # the token behind one.
    pad_id = max(tokenizer.get_vocab().values()) + 1
    text = HuggingFaceText(first, last, pad_id, prefix, truncation_side=side or "right")
    with named(directory):
        return HuggingFaceVocab({TOKENIZER_FILE: tokenizer.to_str().encode()}, text), limit


def _read_settings(directory: Path) -> Settings:
    """The settings of both files; tokens, which may be objects, as strings."""
    settings = Settings(directory / _SETTINGS_FILES[-1], {})
    for name in _SETTINGS_FILES:
        found = read_settings(directory / name, optional=True)
        for key in [key for key in found if key not in _IGNORED]:
            is_token = key.endswith("_token")
            if is_token and isinstance(found[key], Mapping):
                found[key] = found[key].get("content")
            kind = bool if key in _SWITCHES else str if is_token else object
            if found[key] is not None and not isinstance(found[key], kind):
                raise found.error(key, "a string" if is_token else "true or false")
            settings[key] = found[key]
    return settings


def _tokenizer_class(
    directory: Path, published: Published, settings: Mapping[str, Any]
) -> str | None:
    """The class of transformers that reads the tokenizer, without "Fast" at its end."""
    kind, path = published.model_type, directory / CONFIG_FILE
    if kind == "modernbert":  # transformers distrusts the class that is named there
        return "TokenizersBackend"
    config = read_settings(path)
    named = settings.get("tokenizer_class") or config.get("tokenizer_class") or _CLASSES.get(kind)
    return named.removesuffix("Fast") if isinstance(named, str) else None


def _tokenizer(directory: Path, settings: Mapping[str, Any]) -> Any:
    named = settings["tokenizer_class"]
    if (
        named == "BertJapaneseTokenizer"
        or _switch(settings, "word_tokenizer_type", "basic") != "basic"
    ):
        raise ValueError(
            f"{directory / _SETTINGS_FILES[1]}: tokenizer_class {named}: words are split by MeCab "
            "or another program, which is not run; take a model whose tokenizer.json does all"
        )
    path = directory / TOKENIZER_FILE
    if path.is_file():
        tokenizer = load_tokenizer(path.read_bytes(), str(path))
        _apply_settings(tokenizer, settings, directory / _SETTINGS_FILES[1])
        return tokenizer
    raise ValueError(
        f"{path}: missing; where transformers is installed it is made by: python -c "
        "\"from transformers import AutoTokenizer as T; T.from_pretrained('DIR')"
        ".save_pretrained('DIR')\""
    )


def _apply_settings(tokenizer: Any, settings: Mapping[str, Any], where: Path) -> None:
    """Changes what tokenizer.json says where transformers follows tokenizer_config.json."""
    tokenizers = import_tokenizers()
    normalizer = tokenizer.normalizer
    is_bert = isinstance(normalizer, tokenizers.normalizers.BertNormalizer)
    kind = settings["tokenizer_class"]
    if is_bert and kind in _BERT_CLASSES:
        for name, (key, default) in _BERT_SWITCHES.items():
            value = settings.get(key)
            setattr(normalizer, name, default if value is None else value)
        tokenizer.normalizer = normalizer
    if kind in _ADD_SPACE:
        _rebuild(tokenizer, kind, settings)
    known = {token.content for token in tokenizer.get_added_tokens_decoder().values()}
    tokens = _named_tokens(settings, where)
    missing = [token for token in tokens if token.content not in known]
    # A name without an id would get one that the model has no row for.
    tokenizer.add_tokens([t for t in missing if tokenizer.token_to_id(t.content) is not None])


def _rebuild(tokenizer: Any, kind: str, settings: Mapping[str, Any]) -> None:
    """What a class of transformers builds around the pieces, whatever tokenizer.json says."""
    tokenizers = import_tokenizers()
    steps = tokenizers.pre_tokenizers
    space = _switch(settings, "add_prefix_space", _ADD_SPACE[kind])
    if kind == "RobertaTokenizer":
        tokenizer.normalizer = None
        tokenizer.pre_tokenizer = steps.ByteLevel(add_prefix_space=space)
        return
    found = json.loads(tokenizer.to_str())["normalizer"] or {}
    charsmaps = (step.get("precompiled_charsmap") for step in found.get("normalizers", [found]))
    charsmap = next(filter(None, charsmaps), None)
    precompiled = tokenizers.normalizers.Precompiled
    tokenizer.normalizer = precompiled(base64.b64decode(charsmap)) if charsmap else None
    words = steps.Metaspace(prepend_scheme="always" if space else "never")
    tokenizer.pre_tokenizer = steps.Sequence([steps.WhitespaceSplit(), words])


def _named_tokens(settings: Mapping[str, Any], where: Path) -> list[Any]:
    """The tokens that the settings name, as the library takes them."""
    make = functools.partial(import_tokenizers().AddedToken, normalized=False)
    listed = [value for key, value in sorted(settings.items()) if key.endswith("_token") and value]
    for key in ("extra_special_tokens", "additional_special_tokens"):
        more = settings.get(key) or []
        listed += more.values() if isinstance(more, Mapping) else more
    decoder = settings.get("added_tokens_decoder") or {}
    try:
        by_id = sorted(decoder.items(), key=lambda item: int(item[0]))
        tokens = [import_tokenizers().AddedToken(**token) for _, token in by_id]
        texts = [token if isinstance(token, str) else token["content"] for token in listed]
        return [*tokens, *(make(text, special=True) for text in texts)]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{where}: names an invalid token: {error}") from error


def _switch(settings: Mapping[str, Any], key: str, default: Any) -> Any:
    """A setting; null, which transformers writes too, is the default."""
    return default if settings.get(key) is None else settings[key]


def _ends(
    tokenizer: Any, settings: Mapping[str, Any], where: Path, as_in_file: bool
) -> tuple[int | None, int | None]:
    """Ids of the special tokens in front of and behind a text; None where there is none.

    There are two, or with `as_in_file` as many as `tokenizer.json` adds.
    """
    encoded = tokenizer.encode("a")
    special = encoded.special_tokens_mask
    count = sum(special)
    if count == 2 and special[0] and special[-1]:
        for name, found in (("cls_token", encoded.tokens[0]), ("sep_token", encoded.tokens[-1])):
            if not as_in_file and settings.get(name) not in (None, found):
                raise ValueError(
                    f"{where}: puts {found} around a text, but tokenizer_config.json says {name} "
                    f"{settings[name]!r:.60}; remove the one that is wrong"
                )
        return encoded.ids[0], encoded.ids[-1]
    if as_in_file and count == special[0] + special[-1]:
        return encoded.ids[0] if special[0] else None, encoded.ids[-1] if special[-1] else None
    first = settings.get("cls_token") or settings.get("bos_token")
    last = settings.get("sep_token") or settings.get("eos_token")
    is_plain = settings.get("tokenizer_class") in _PLAIN_CLASSES
    if count or first is None or last is None or is_plain:
        raise ValueError(
            f"{where}: its post_processor must put one special token in front of a text and one "
            f"behind; found {' '.join(encoded.tokens):.60} for 'a'"
        )
    to_id = tokenizer.token_to_id
    return _id(to_id, first, "cls_token", where), _id(to_id, last, "sep_token", where)


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


def _id(token_to_id: Any, token: str, name: str, where: Path) -> int:
    number = token_to_id(token) if isinstance(token, str) else None
    if type(number) is not int:
        raise ValueError(f"{where}: {name} {token!r:.60} is not in the vocabulary")
    return number


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
    vocabulary = read_settings(path)
    names = {**_XLM_TOKENS, **{key: value for key, value in settings.items() if value}}
    text = HuggingFaceText(
        bos_id=_id(vocabulary.get, names["bos_token"], "bos_token", path),
        eos_id=_id(vocabulary.get, names["sep_token"], "sep_token", path),
        pad_id=max(vocabulary.values()) + 1,
        lowercase=lowercase or bool(settings.get("do_lowercase_and_remove_accent", True)),
        **text,
    )
    with named(directory):
        return HuggingFaceVocab(files, text)
