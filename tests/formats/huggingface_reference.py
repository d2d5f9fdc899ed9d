"""Random published encoders, saved by transformers and sentence-transformers themselves."""

import functools
import json
import os
import random
import unicodedata
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np
import sentence_transformers
import tokenizers
import torch
import transformers
from sentence_transformers.sentence_transformer import modules

POSITIONS = 34
SIZES = {
    "hidden_size": 24,
    "num_hidden_layers": 3,
    "num_attention_heads": 3,
    "intermediate_size": 40,
    "max_position_embeddings": POSITIONS,
}
OTHER_SIZES = {
    "distilbert": {"dim": 24, "n_layers": 3, "n_heads": 3, "hidden_dim": 40},
    "xlm": {"emb_dim": 24, "n_layers": 3, "n_heads": 3},
}
XLM_SPECIALS = ("<s>", "</s>", "<pad>", "<unk>", "<special0>", "<special1>")
TEXTS = [
    "La mo TI, ren su kel.",
    "",
    "da vi bor né ☃ 木 — „so“ 12",
    "  lamo tiren   sukel davi borné!  ",
    "lamo tiren sukel davi borné " * 12,
    "ti",
    "Résumé: KEL (la) mo; vi?",
]
HOSTILE = [
    "",
    " ",
    "\x00",
    "\t\r\n\u2028\x85\u200b\ufeff",
    "a\u0301\u0301\u0301 \u0301a é é Ǆ İ ı ſ ẞ ﬁ",
    "\u202eabc\u202c \u200d\u200c",
    "👩‍👩‍👧‍👦 🏳️‍🌈 ☃ \ufffd \U000e0041 \U0010ffff",
    "½ ① ㎏ ﷺ Ⅳ ² ㌔ ｶﾞ ＡＢＣ",
    "____ ▁▁ ▁a ##la @@ </w> \\u0000 %s {} <b>",
    "0123456789 1,234.56 −7 3/4",
    "la" * 400,
    "la mo ti " * 300,
    "木" * 300,
]


@functools.cache
def world() -> list[str]:
    """A made-up sentence in each of the scripts that Unicode names, over a hundred."""
    letters: dict[str, list[str]] = {}
    for code in range(0x41, 0x1F000):
        character = chr(code)
        if unicodedata.category(character) in ("Lu", "Ll", "Lo", "Lm", "Mn", "Mc", "Nd"):
            letters.setdefault(unicodedata.name(character, "UNNAMED").split()[0], []).append(
                character
            )
    generator = random.Random(0)
    scripts = [found for found in letters.values() if len(found) > 20]
    word = lambda found: "".join(generator.choices(found[:200], k=generator.randint(1, 7)))
    return [" ".join(word(found) for _ in range(6)) + "." for found in scripts]


def corpus() -> list[str]:
    """Text to train tokenizers on."""
    generator = random.Random(0)
    syllables = ["la", "mo", "ti", "ren", "su", "kel", "da", "vi", "bor", "né", "La", "KEL"]
    words = ["".join(generator.choices(syllables, k=generator.randint(1, 3))) for _ in range(100)]
    return [" ".join(generator.choices(words, k=10)) + " ." for _ in range(100)]


def save_tokenizer(kind: str, path: Path, **options) -> None:
    """Trains a tokenizer of a kind and has transformers save it."""
    if kind == "xlm":
        _save_xlm_tokenizer(path, **options)
        return
    if kind in ("bert", "distilbert"):
        trained = tokenizers.BertWordPieceTokenizer(lowercase=options.get("do_lower_case", True))
        trained.train_from_iterator(corpus(), vocab_size=120, min_frequency=1)
        result = transformers.BertTokenizer(vocab=trained.get_vocab(), **options)
    elif kind == "roberta":
        trained = tokenizers.ByteLevelBPETokenizer()
        specials = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
        trained.train_from_iterator(corpus(), vocab_size=330, special_tokens=specials)
        model = json.loads(trained.to_str())["model"]
        merges = [tuple(merge) for merge in model["merges"]]
        result = transformers.RobertaTokenizer(vocab=model["vocab"], merges=merges, **options)
    else:
        trained = tokenizers.SentencePieceUnigramTokenizer()
        trained.train_from_iterator(corpus(), vocab_size=100, unk_token="<unk>")
        pieces = [tuple(row) for row in json.loads(trained.to_str())["model"]["vocab"]]
        specials = [(piece, 0.0) for piece in ("<s>", "<pad>", "</s>", "<unk>")]
        vocab = specials + [row for row in pieces if row[0] != "<unk>"] + [("<mask>", 0.0)]
        make = transformers.XLMRobertaTokenizer
        result = (transformers.CamembertTokenizer if kind == "camembert" else make)(
            vocab=vocab, **options
        )
    result.save_pretrained(path)


def train_tokenizer(kind: str) -> tokenizers.Tokenizer:
    """A tokenizer of another kind, trained on half of the scripts: the others are unknown."""
    return tokenizers.Tokenizer.from_str(_trained(kind))


@functools.cache
def _trained(kind: str) -> str:
    text = [*corpus(), *world()[::2]]
    if kind == "words":
        trained = tokenizers.Tokenizer(tokenizers.models.WordLevel(unk_token="[UNK]"))
        trained.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
        trainer = tokenizers.trainers.WordLevelTrainer(special_tokens=["[UNK]", "[PAD]"])
        trained.train_from_iterator(text, trainer)
        return trained.to_str()
    made = {
        "wordpiece": tokenizers.BertWordPieceTokenizer,
        "unigram": tokenizers.SentencePieceUnigramTokenizer,
        "bpe": tokenizers.SentencePieceBPETokenizer,
        "byte-level": tokenizers.ByteLevelBPETokenizer,
    }[kind]()
    special = {"unigram": {"unk_token": "<unk>"}}.get(kind, {})
    made.train_from_iterator(text, vocab_size=2500, show_progress=False, **special)
    trained = tokenizers.Tokenizer.from_str(made.to_str())
    trained.enable_padding(length=600)  # which both libraries turn off
    return trained.to_str()


def save_model2vec(path: Path, kind: str = "wordpiece", weights: bool = False, **options) -> Path:
    """Saves a random `StaticModel`; `options` are its own, or of `quantize_model`."""
    import model2vec
    from model2vec.model import quantize_model

    tokenizer, generator = train_tokenizer(kind), np.random.default_rng(0)
    size = tokenizer.get_vocab_size()
    own = {key: options.pop(key) for key in ("normalize", "max_length") if key in options}
    if weights:
        own["weights"] = generator.uniform(0.1, 2, size).astype(np.float32)
    vectors = generator.normal(size=(size, 24)).astype(np.float32)
    model = model2vec.StaticModel(vectors, tokenizer, **own)
    if options:
        model = quantize_model(model, **options)
    model.save_pretrained(path)
    return path


def _save_xlm_tokenizer(path: Path, **options) -> None:
    trained = tokenizers.Tokenizer(tokenizers.models.BPE(end_of_word_suffix="</w>"))
    trained.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=120, end_of_word_suffix="</w>", show_progress=False
    )
    trained.train_from_iterator(corpus(), trainer)
    model = json.loads(trained.to_str())["model"]
    # As published, some results of merges are not in the vocabulary.
    pieces = [piece for piece in model["vocab"] if len(piece) < 9]
    assert len(pieces) < len(model["vocab"])
    vocab = {piece: number for number, piece in enumerate([*XLM_SPECIALS, *pieces])}
    (path / "vocab.json").write_text(json.dumps(vocab))
    merges = "".join(" ".join(merge) + "\n" for merge in model["merges"])
    (path / "merges.txt").write_text(merges, "utf-8")
    files = (str(path / "vocab.json"), str(path / "merges.txt"))
    transformers.XLMTokenizer(*files, **options).save_pretrained(path)


def randomize(module: torch.nn.Module) -> None:
    """Gives every parameter a value that shows: biases, norms and all tables."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, value in module.named_parameters():
            scale = 1.0 if "mbeddings" in name else 0.3
            value.copy_(torch.randn(value.shape, generator=generator) * scale)
            if "orm" in name and name.endswith("weight"):
                value += 1


def save_model(path: Path, kind: str, tokenizer: str | None = None, **config) -> None:
    """Saves a random transformer and its tokenizer, which may be of another kind."""
    path.mkdir()
    options = {"do_lowercase_and_remove_accent": False} if kind == "xlm" else {}
    save_tokenizer(tokenizer or kind, path, **options)
    vocab_size = len(transformers.AutoTokenizer.from_pretrained(path)) + 2
    sizes = {**SIZES, **OTHER_SIZES.get(kind, {})}
    settings = {"vocab_size": vocab_size, **sizes, **config}
    if kind in OTHER_SIZES:
        settings = {key: value for key, value in settings.items() if key not in SIZES}
        settings["max_position_embeddings"] = POSITIONS
    settings = transformers.AutoConfig.for_model(kind, **settings)
    model = transformers.AutoModel.from_config(settings)
    randomize(model)
    model.save_pretrained(path)


def save_sentence_transformer(path: Path, transformer: Path, pooling: str, dense: bool) -> None:
    """Saves a transformer with pooling, a dense layer and a norm, as LaBSE's."""
    parts = [modules.Transformer(str(transformer), max_seq_length=20)]
    parts.append(modules.Pooling(24, pooling_mode=pooling))
    if dense:
        parts.append(modules.Dense(24, 16, activation_function=torch.nn.Tanh()))
        parts.append(modules.Normalize())
        randomize(parts[2])
    sentence_transformers.SentenceTransformer(modules=parts, device="cpu").save(str(path))


def token_states(path: Path, texts: list[str], layer: int = -1, limit: int | None = None):
    """States of a layer by transformers, [n, length, width], and the [n, length] mask."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(path)
    model = transformers.AutoModel.from_pretrained(path).eval()
    batch = tokenizer(texts, padding=True, truncation=True, max_length=limit, return_tensors="pt")
    with torch.inference_mode():
        out = model(**batch, output_hidden_states=True)
    return out.hidden_states[layer].numpy(), batch["attention_mask"].numpy().astype(bool)


def mean(states: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Mean over True positions in float64."""
    weights = mask[..., None].astype(np.float64)
    return (states * weights).sum(1) / np.maximum(weights.sum(1), 1)


def edit_json(path: Path, **changes) -> None:
    """Changes keys of a JSON file."""
    content = json.loads(path.read_text())
    path.write_text(json.dumps(content | changes))
