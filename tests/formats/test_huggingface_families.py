"""Families and layouts of today's multilingual encoders, on text in all scripts, to 1e-5."""

import numpy as np
import pytest

import xling_jax
from xling_jax.formats.huggingface import convert_huggingface
from xling_jax.models.numpy_bert import position_buckets

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("sentence_transformers")

from tests.formats import huggingface_reference as reference  # noqa: E402

TEXTS = [*reference.TEXTS, *reference.HOSTILE, *reference.world()]


def errors(found, expected):
    """The largest difference of two matrices, relative to the largest element of the second."""
    return np.abs(found - expected).max() / np.abs(expected).max()


def test_buckets_of_positions_are_those_of_transformers():
    from transformers.models.mpnet.modeling_mpnet import MPNetEncoder

    distance = torch.arange(-600, 600)
    expected = MPNetEncoder.relative_position_bucket(distance).numpy()
    np.testing.assert_array_equal(position_buckets(distance.numpy()), expected)
    assert len({*expected[: 600 - 128]}) == len({*expected[600 + 128 :]}) == 1


@pytest.mark.parametrize(
    ("kind", "pooling", "config"),
    [
        ("mpnet", "mean", {"layer_norm_eps": 1e-3, "max_position_embeddings": 514}),
        ("mpnet", "first", {"hidden_act": "relu", "relative_attention_num_buckets": 40}),
        ("camembert", "mean", {"type_vocab_size": 1, "layer_norm_eps": 1e-5}),
        ("camembert", "max", {"hidden_act": "gelu_new", "max_position_embeddings": 50}),
    ],
)
def test_text_in_every_script_has_the_vectors_of_transformers(tmp_path, kind, pooling, config):
    reference.save_model(tmp_path / kind, kind, **config)
    convert_huggingface(tmp_path / kind, tmp_path / "m", pooling=pooling)
    encoder = xling_jax.load(tmp_path / "m")
    limit = config.get("max_position_embeddings", reference.POSITIONS) - 2
    assert encoder.max_length_tokens == limit and len(TEXTS) > 100
    states, mask = reference.token_states(tmp_path / kind, TEXTS, limit=limit)
    expected = {
        "first": states[:, 0],
        "max": np.where(mask[..., None], states, -np.inf).max(1),
        "mean": reference.mean(states, mask),
    }[pooling]
    assert errors(encoder.encode(TEXTS), expected) < 1e-5


def test_mpnet_with_fewer_buckets_than_it_uses_is_refused(tmp_path):
    reference.save_model(tmp_path / "mpnet", "mpnet")
    reference.edit_json(tmp_path / "mpnet" / "config.json", relative_attention_num_buckets=16)
    with pytest.raises(ValueError, match="relative_attention_num_buckets must be at least 32; f"):
        convert_huggingface(tmp_path / "mpnet", tmp_path / "m")


@pytest.mark.parametrize(
    ("pooling", "positions", "limit", "prompts"),
    [
        ("cls", 8194, 8192, {}),  # bge-m3
        ("mean", 514, 512, {"query": "query: ", "passage": "passage: "}),  # multilingual-e5
    ],
)
def test_layouts_of_bge_m3_and_multilingual_e5(tmp_path, pooling, positions, limit, prompts):
    import sentence_transformers
    from sentence_transformers.sentence_transformer import modules

    reference.save_model(
        tmp_path / "xlmr",
        "xlm-roberta",
        max_position_embeddings=positions,
        type_vocab_size=1,
        layer_norm_eps=1e-5,
        num_hidden_layers=2,
    )
    parts = [modules.Transformer(str(tmp_path / "xlmr"), max_seq_length=limit)]
    parts += [modules.Pooling(24, pooling_mode=pooling), modules.Normalize()]
    model = sentence_transformers.SentenceTransformer(modules=parts, device="cpu", prompts=prompts)
    model.save(str(tmp_path / "st"))
    convert_huggingface(tmp_path / "st", tmp_path / "m")
    encoder = xling_jax.load(tmp_path / "m")
    assert encoder.max_length_tokens == limit
    texts = [*TEXTS, "la mo ti ren su kel da vi bor " * 100]
    assert errors(encoder.encode(texts), model.encode(texts)) < 1e-5
