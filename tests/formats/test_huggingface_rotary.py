"""Encoders with rotary positions against transformers and sentence-transformers."""

import json
import math

import pytest

import xling_jax
from xling_jax.encode.model_directory import load_model
from xling_jax.formats.huggingface import convert_huggingface
from xling_jax.formats.huggingface_layouts import read_config

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
sentence_transformers = pytest.importorskip("sentence_transformers")

from tests.formats import huggingface_reference  # noqa: E402
from tests.formats import rotary_reference as reference  # noqa: E402
from tests.formats.every_family import difference  # noqa: E402

TEXTS = reference.TEXTS
# The plain Gemma tokenizer has this class in mmBERT.
MMBERT = lambda path: reference.save_gemma(path, "PreTrainedTokenizerFast")
ROPES = lambda full, local: {"full_attention": full, "sliding_attention": local}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 3.0}
LLAMA3 |= {"rope_theta": 100.0, "original_max_position_embeddings": 20}
DYNAMIC = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 50.0}
SCALED = ROPES({**YARN, "rope_theta": 900.0, "attention_factor": 0.7}, DYNAMIC)
WINDOW = {"use_bidirectional_attention": False, "sliding_window": 4}


@pytest.mark.parametrize(
    ("kind", "pooling", "config"),
    [
        ("qwen3", "last", {"num_key_value_heads": None, "rope_parameters": LLAMA3}),
        ("gemma3_text", "last", {"attention_bias": True, "rope_parameters": SCALED} | WINDOW),
    ],
)
def test_vectors_are_those_of_transformers(tmp_path, kind, pooling, config):
    """Also of long, empty and hostile text, and whatever side the original pads."""
    path = reference.save_model(tmp_path / "original", kind, **config)
    convert_huggingface(path, tmp_path / "m", pooling=pooling)
    encoder = xling_jax.load(tmp_path / "m")
    assert encoder.max_length_tokens == reference.POSITIONS
    expected = reference.vectors(path, TEXTS, pooling)
    assert difference(encoder.encode(TEXTS), expected) < 1e-5


def test_the_original_positions_beside_the_rotation_win(tmp_path):
    rope = {**YARN, "rope_theta": 300.0}
    path = reference.save_model(tmp_path / "original", "qwen3", rope_parameters=rope)
    both = {"original_max_position_embeddings": 2, "rope_parameters": rope}
    huggingface_reference.edit_json(path / "config.json", **both)
    convert_huggingface(path, tmp_path / "m", pooling="mean")
    expected = reference.vectors(path, TEXTS, "mean")
    assert difference(xling_jax.load(tmp_path / "m").encode(TEXTS), expected) < 1e-5


def _save_bare_qwen(path):
    reference.save_qwen(path, last=None)


@pytest.mark.parametrize(
    ("kind", "save_tokenizer", "specials"),
    [
        ("modernbert", None, [["bos"], ["eos"]]),
        ("modernbert", MMBERT, [["bos"], ["eos"]]),
        ("qwen3", None, [[], ["eos"]]),
        ("qwen3", _save_bare_qwen, [[], []]),
        ("gemma3_text", None, [["bos"], ["eos"]]),
    ],
)
def test_ids_are_those_of_the_published_tokenizer(tmp_path, kind, save_tokenizer, specials):
    path = reference.save_model(tmp_path / "original", kind, save_tokenizer, num_hidden_layers=1)
    convert_huggingface(path, tmp_path / "m", layer=0)
    spec = load_model(tmp_path / "m")
    vocab, tokenizer = spec.vocab, transformers.AutoTokenizer.from_pretrained(path)
    assert spec.config["specials"] == [list(names) for names in spec.module.specials] == specials
    ids = {"bos": vocab.bos_id, "eos": vocab.eos_id}
    before, after = ([ids[name] for name in names] for names in specials)
    for text, row in zip(TEXTS, vocab.encode(TEXTS), strict=True):
        assert [*before, *row, *after] == tokenizer(text)["input_ids"]
    # No text has the id of padding, not even one that spells the original's.
    assert vocab.pad_id == vocab.size - 1 == max(tokenizer.get_vocab().values()) + 1


def test_sentence_transformers_are_converted_whole(published, tmp_path):
    """As EmbeddingGemma is published."""
    from sentence_transformers.sentence_transformer import modules

    width = reference.CONFIGS["gemma3_text"]["hidden_size"]
    parts = [modules.Transformer(str(published("gemma3_text")), max_seq_length=21)]
    parts.append(modules.Pooling(width, pooling_mode="mean"))
    for outputs in (31, 7):
        identity = torch.nn.Identity()
        dense = modules.Dense(width, outputs, bias=False, activation_function=identity)
        huggingface_reference.randomize(dense)
        parts, width = [*parts, dense], outputs
    parts.append(modules.Normalize())
    saved = tmp_path / "st"
    sentence_transformers.SentenceTransformer(modules=parts, device="cpu").save(str(saved))
    # Published ones have these, which transformers no longer follows.
    switches = {"add_bos_token": True, "add_eos_token": False}
    huggingface_reference.edit_json(saved / "tokenizer_config.json", **switches)
    model = sentence_transformers.SentenceTransformer(str(saved), device="cpu")
    recorded = convert_huggingface(saved, tmp_path / "m")
    assert recorded["pooling"].endswith("normalized")
    encoder = xling_jax.load(tmp_path / "m")
    assert encoder.dim == width and encoder.max_length_tokens == 21
    assert difference(encoder.encode(TEXTS), model.encode(TEXTS)) < 1e-5


def test_an_earlier_layer_has_no_final_norm(published, tmp_path):
    path = published("modernbert")
    recorded = convert_huggingface(path, tmp_path / "m", layer=2)
    assert recorded["layer"] == "2 of 3"
    states, mask = huggingface_reference.token_states(path, TEXTS, 2, reference.POSITIONS)
    expected = huggingface_reference.mean(states, mask)
    found = xling_jax.load(tmp_path / "m").encode(TEXTS)
    assert difference(found, expected) < 1e-5


@pytest.mark.parametrize(
    ("kind", "changes", "message"),
    [
        ("gte", {"model_type": "new"}, "model_type 'new' is Python code .* model_type 'gte'"),
        ("qwen3", {"model_type": "qwen4"}, "'qwen4' is not supported; .* modernbert, qwen3"),
        ("qwen3", {"rope_parameters": {"rope_type": "longrope"}}, "rope_type='longrope' must be"),
        (
            "qwen3",
            {"rope_parameters": {"rope_type": "linear"}},
            "factor must be a number above 0; found nothing",
        ),
        (
            "qwen3",
            {"rope_parameters": {"rope_theta": 9.0, "partial_rotary_factor": 0.5}},
            "partial_rotary_factor must be 1.0; found 0.5",
        ),
        ("modernbert", {"rope_parameters": {"rope_theta": 9.0}}, "must hold full_attention and"),
        ("modernbert", {"hidden_activation": "xielu"}, "hidden_activation must be one of .*xielu"),
        ("modernbert", {"layer_types": ["full_attention"]}, "layer_types must be 3 times"),
        ("modernbert", {"num_attention_heads": 5}, "=5 must divide hidden_size=36"),
        ("modernbert", {"mlp_bias": 1}, "mlp_bias must be true or false; found 1"),
        ("gemma3_text", {"attn_logit_softcapping": 30.0}, "attn_logit_softcapping must be None"),
        ("gemma3_text", {"is_causal": False}, "is_causal must be True; found False"),
        ("gemma3_text", {"num_key_value_heads": 3}, "=3 must divide num_attention_heads=4"),
        ("gemma3_text", {"head_dim": 15}, "must have an even width; found 15"),
        ("gemma3_text", {"attention_bias": True}, "self_attn.q_proj.bias .* is missing"),
        ("gemma3_text", {"vocab_size": 300}, "the tokenizer has .* the model's table 300 rows"),
        ("qwen3", {"attention_dropout": 2}, "attention_dropout must be at least 0 and below 1"),
    ],
)
def test_what_is_not_supported_is_refused_in_one_line(published, tmp_path, kind, changes, message):
    path = tmp_path / "original"
    path.mkdir()
    for file in published(kind).iterdir():
        (path / file.name).symlink_to(file)
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").unlink()
    (path / "config.json").write_text(json.dumps(config | changes))
    with pytest.raises(ValueError, match=message) as error:
        convert_huggingface(path, tmp_path / "m")
    assert "\n" not in str(error.value) and str(path) in str(error.value)
    assert not (tmp_path / "m").exists()


def test_what_cannot_be_pooled_is_refused(published, tmp_path):
    with pytest.raises(ValueError, match="pooling='pooler': gte has no such layer"):
        convert_huggingface(published("gte"), tmp_path / "m", pooling="pooler")


def test_settings_as_they_were_before_transformers_5(published, tmp_path):
    """The names that the configs on the hub have."""
    old = {
        "modernbert": {
            "global_rope_theta": 160000.0,
            "local_rope_theta": 10000.0,
            "global_attn_every_n_layers": 2,
            "position_embedding_type": "sans_pos",
        },
        "qwen3": {"rope_theta": 10000.0, "rope_scaling": None},
        "gemma3_text": {
            "rope_theta": 1000000.0,
            "rope_local_base_freq": 10000.0,
            "rope_scaling": None,
            "sliding_window_pattern": 3,
        },
    }
    for kind, settings in old.items():
        convert_huggingface(published(kind), tmp_path / "new" / kind)
        config = json.loads((published(kind) / "config.json").read_text())
        for key in ("rope_parameters", "layer_types"):
            if key == "rope_parameters" or kind != "qwen3":
                del config[key]
        path = published(kind) / "config.json"
        text = path.read_text()
        path.write_text(json.dumps(config | settings))
        convert_huggingface(published(kind), tmp_path / "old" / kind)
        path.write_text(text)
        new, found = (load_model(tmp_path / age / kind) for age in ("new", "old"))
        assert found.fingerprint == new.fingerprint


def sizes(path, kind, **config):
    """What a config.json says, beside the sizes of a model of 32 layers and 64 positions."""
    config |= {"model_type": kind, "hidden_size": 8, "num_hidden_layers": 32}
    config |= {"num_attention_heads": 2, "intermediate_size": 4, "vocab_size": 9}
    (path / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 64}))
    return read_config(path).sizes


@pytest.mark.parametrize(
    ("kind", "config", "window"),
    [
        ("qwen3", {}, None),
        ("qwen3", {"use_sliding_window": True, "sliding_window": 4}, 4),
        ("qwen3", {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 3}, 4),
        ("gemma3_text", {}, 4096),
        ("modernbert", {}, 65),
    ],
)
def test_without_layer_types_the_layers_with_a_window_are_those_of_transformers(
    tmp_path, kind, config, window
):
    types = transformers.AutoConfig.for_model(kind, num_hidden_layers=32, **config).layer_types
    found = sizes(tmp_path, kind, **config)
    local = [number for number, name in enumerate(types) if name == "sliding_attention"]
    assert (found["local_layers"], found.get("window")) == (local, window)


def test_rotations_that_are_scaled(tmp_path):
    yarn = {"rope_type": "yarn", "factor": 4.0, "mscale": 0.5, "mscale_all_dim": 2.0}
    scale = (0.05 * math.log(4) + 1) / (0.2 * math.log(4) + 1)
    found = sizes(tmp_path, "qwen3", rope_parameters=yarn)["rope"]
    assert found == [10000.0, "yarn", 4.0, 32.0, 1.0, 64.0, pytest.approx(scale)]
    old = {"rope_scaling": {"type": "linear", "factor": 8.0}}
    assert sizes(tmp_path, "qwen3", **old)["rope"] == [10000.0, "linear", 8.0]
    found = sizes(tmp_path, "gemma3_text", **old)
    assert found["rope"] == [1000000.0, "linear", 8.0] and found["local_rope"] == [10000.0]
    found = sizes(tmp_path, "modernbert", **old)
    assert found["rope"] == [160000.0, "linear", 8.0]
    assert found["local_rope"] == [10000.0, "linear", 8.0]
    found = sizes(tmp_path, "modernbert", global_rope_theta=500.0, local_rope_theta=None)
    assert found["local_rope"] == found["rope"] == [500.0]
