"""Random encoders with rotary positions, saved by transformers, and tokenizers of their kinds."""

import json
from pathlib import Path

import numpy as np
import tokenizers
import torch
import transformers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

from tests.formats import huggingface_reference as reference

# As in GPT-4's tokenizer and Qwen's.
_QWEN_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
POSITIONS = 48
TEXTS = [
    *reference.TEXTS,
    "Der Hund schläft; Чёрная кошка спит. 狗在睡觉。犬は寝ている。",
    "यह एक वाक्य है। ይህ ዓረፍተ ነገር ነው። هذه جملة ۱۲۳ ეს წინადადებაა",
]

CONFIGS = {
    "modernbert": {
        "hidden_size": 36,
        "num_hidden_layers": 3,
        "num_attention_heads": 3,
        "intermediate_size": 21,
        "local_attention": 7,
        "global_attn_every_n_layers": 2,
        "norm_eps": 1e-3,
    },
    "qwen3": {
        "hidden_size": 27,
        "num_hidden_layers": 3,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "head_dim": 10,
        "intermediate_size": 33,
        "rms_norm_eps": 1e-4,
    },
    "gemma3_text": {
        "hidden_size": 40,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 1,
        "head_dim": 14,
        "intermediate_size": 25,
        "query_pre_attn_scalar": 5,
        "sliding_window": 9,
        "sliding_window_pattern": 3,
        "use_bidirectional_attention": True,
    },
}


def _corpus() -> list[str]:
    return [*reference.corpus(), *(text for text in TEXTS[-2:] for _ in range(3))]


def _template(tokenizer, first: str | None, last: str | None):
    names = [name for name in (first, last) if name]
    single = " ".join(name for name in (first, "$A", last) if name)
    pairs = [(name, tokenizer.token_to_id(name)) for name in names]
    return processors.TemplateProcessing(single=single, special_tokens=pairs)


def _byte_level(words: pre_tokenizers.PreTokenizer | None) -> tokenizers.Tokenizer:
    """Byte-level BPE; words are those of GPT-2 where no other rule splits them."""
    result = tokenizers.Tokenizer(models.BPE())
    result.normalizer = normalizers.NFC()
    bytes_only = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=words is None)
    result.pre_tokenizer = pre_tokenizers.Sequence([words, bytes_only] if words else [bytes_only])
    result.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=330, initial_alphabet=alphabet, show_progress=False)
    result.train_from_iterator(_corpus(), trainer)
    return result


def save_qwen(path: Path) -> None:
    """Qwen3-Embedding's: what is behind a text is padding, too."""
    end = "<|endoftext|>"
    result = _byte_level(pre_tokenizers.Split(tokenizers.Regex(_QWEN_WORDS), "isolated"))
    result.add_special_tokens([end, "<|im_start|>", "<|im_end|>"])
    steps = [processors.ByteLevel(trim_offsets=False), _template(result, None, end)]
    result.post_processor = processors.Sequence(steps)
    _save(path, result, "Qwen2Tokenizer", pad=end, eos="<|im_end|>", side="left")


def save_modernbert(path: Path) -> None:
    """ModernBERT's."""
    result = _byte_level(None)
    result.add_special_tokens(["[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"])
    result.post_processor = _template(result, "[CLS]", "[SEP]")
    _save(path, result, "PreTrainedTokenizerFast", pad="[PAD]", cls="[CLS]", sep="[SEP]")


def save_gemma(path: Path, tokenizer_class: str = "GemmaTokenizer") -> None:
    """Gemma's: pieces of SentencePiece with bytes for what they lack; mmBERT has it too."""
    trained = tokenizers.Tokenizer(models.BPE(unk_token="<unk>"))
    trained.normalizer = normalizers.Replace(" ", "▁")
    trained.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    trainer = trainers.BpeTrainer(vocab_size=200, show_progress=False)
    trained.train_from_iterator(reference.corpus(), trainer)
    model = json.loads(trained.to_str())["model"]
    specials = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>"]
    pieces = [*specials, *(f"<0x{number:02X}>" for number in range(256)), *model["vocab"]]
    vocab = {piece: number for number, piece in enumerate(pieces)}
    merges = [tuple(merge) for merge in model["merges"]]
    options = {"unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True}
    result = tokenizers.Tokenizer(models.BPE(vocab, merges, **options))
    result.normalizer, result.pre_tokenizer = trained.normalizer, trained.pre_tokenizer
    result.add_special_tokens(specials)
    # Without a row in the published table.
    result.add_special_tokens(["<image>"])
    result.post_processor = _template(result, "<bos>", "<eos>")
    tokens = {"pad": "<pad>", "eos": "<eos>", "bos": "<bos>"}
    _save(path, result, tokenizer_class, **tokens, side="left")


TOKENIZERS = {
    "modernbert": save_modernbert,
    "qwen3": save_qwen,
    "gemma3_text": save_gemma,
}


def _save(path: Path, tokenizer, kind: str, side: str = "right", **tokens: str) -> None:
    tokenizer.save(str(path / "tokenizer.json"))
    settings = {f"{name}_token": token for name, token in tokens.items()}
    settings |= {"tokenizer_class": kind, "padding_side": side}
    (path / "tokenizer_config.json").write_text(json.dumps(settings))


def save_model(path: Path, kind: str, save_tokenizer=None, **config) -> Path:
    """Saves a random transformer and its tokenizer, and returns the directory."""
    path.mkdir()
    (save_tokenizer or TOKENIZERS[kind])(path)
    vocab_size = tokenizers.Tokenizer.from_file(str(path / "tokenizer.json")).get_vocab_size()
    vocab_size -= save_tokenizer is save_gemma or kind == "gemma3_text"
    settings = {
        **CONFIGS[kind],
        "vocab_size": vocab_size,
        "max_position_embeddings": POSITIONS,
        **dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id"), 0),
        **config,
    }
    model = transformers.AutoModel.from_config(transformers.AutoConfig.for_model(kind, **settings))
    reference.randomize(model)
    model.save_pretrained(path)
    return path


def vectors(path: Path, texts: list[str], pooling: str, limit: int = POSITIONS) -> np.ndarray:
    """Vectors by transformers in float64, padded on the side that the tokenizer chooses."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(path)
    model = transformers.AutoModel.from_pretrained(path).double().eval()
    batch = tokenizer(texts, padding=True, truncation=True, max_length=limit, return_tensors="pt")
    batch = {key: batch[key] for key in ("input_ids", "attention_mask")}
    with torch.inference_mode():
        states = model(**batch).last_hidden_state.numpy()
    mask = batch["attention_mask"].numpy().astype(bool)
    rows = [row[kept] for row, kept in zip(states, mask, strict=True)]
    pooled = {"mean": lambda row: row.mean(0), "first": lambda row: row[0]}
    pooled |= {"last": lambda row: row[-1], "max": lambda row: row.max(0)}
    return np.stack([pooled[pooling](row) for row in rows])
