"""Encoders with rotary positions against transformers and sentence-transformers."""

import json

import pytest

from xling_jax.encode.model_directory import load_model
from xling_jax.formats.huggingface import convert_huggingface
from xling_jax.formats.huggingface_layouts import read_config

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
sentence_transformers = pytest.importorskip("sentence_transformers")

from tests.formats import rotary_reference as reference  # noqa: E402

TEXTS = reference.TEXTS


@pytest.mark.parametrize(
    ("kind", "changes", "message"),
    [
        ("qwen3", {"model_type": "new", "auto_map": {"x": "y"}}, "Python code"),
        ("qwen3", {"model_type": "qwen4"}, "='qwen4' must be one of .* modernbert, qwen3"),
        ("qwen3", {"rope_parameters": {"rope_type": "yarn"}}, "rope_type must be 'default'"),
        ("gemma3_text", {"rope_scaling": {"factor": 8.0}}, "rope_scaling must be None"),
        ("qwen3", {"use_sliding_window": True}, "use_sliding_window must be False"),
        (
            "qwen3",
            {"rope_parameters": {"rope_theta": 9.0, "partial_rotary_factor": 0.5}},
            "partial_rotary_factor must be 1.0; found 0.5",
        ),
        ("modernbert", {"rope_parameters": {"rope_theta": 9.0}}, "must hold full_attention and"),
        ("modernbert", {"layer_types": ["full_attention"]}, "layer_types must be 3 times"),
        ("modernbert", {"mlp_bias": 1}, "mlp_bias must be true or false; found 1"),
        ("gemma3_text", {"attn_logit_softcapping": 30.0}, "attn_logit_softcapping must be None"),
        ("gemma3_text", {"num_key_value_heads": 3}, r"k_proj.weight must be \[42, 40\]; found"),
        ("gemma3_text", {"attention_bias": True}, "self_attn.q_proj.bias is missing"),
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


def test_a_rotation_of_windows_that_is_the_global_one(tmp_path):
    found = sizes(tmp_path, "modernbert", global_rope_theta=500.0, local_rope_theta=None)
    assert found["local_rope"] == found["rope"] == [500.0]
