"""Forms: the parameters, the checks and the vectors of the Linen modules, without JAX."""

import dataclasses
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from flax.traverse_util import unflatten_dict
from scipy.special import ndtr

from xling_jax.encode.device_batches import parameter_shapes
from xling_jax.models import packed as layers
from xling_jax.models.bert import ACTIVATIONS
from xling_jax.models.forms import FORMS
from xling_jax.models.packed import Packed
from xling_jax.models.registry import ENCODERS, build_encoder

VOCAB_SIZE = 60
LENGTHS = np.array([9, 9, 7, 7, 7, 4, 2, 1, 1])
SIZES = {"width": 16, "layers": 2, "heads": 2, "ffn_width": 24}
POOLINGS = ("first", "mean", "max", "last", "self_attention")
CASES = [("tlaser", SIZES | {"pooling": pooling}) for pooling in POOLINGS]
CASES += [
    ("dual", SIZES | {"pooling": pooling, "norm": norm, "attention_hops": 2, "layers": layers})
    for pooling in (*POOLINGS, "weighted_mean")
    for norm, layers in (("post", 2), ("pre", 2), ("post", 0))
]
CASES += [
    (
        "laser",
        {"width": 16, "layers": 3, "embedding_width": 12, "pooling": pooling}
        | {"unidirectional_layers": unidirectional, "published_parameters": published},
    )
    for pooling, unidirectional, published in (
        *(("max", 0, False), ("mean", 1, True), ("self_attention", 3, False)),
        *(("last", 2, True), ("max", 3, True)),
    )
]
CASES += [
    ("bert", SIZES | options)
    for options in (
        {"pooling": "first", "normalize": True},
        {"pooling": "last", "layers": 0},
        {"activation": "gelu_tanh", "projections": ((8, "tanh", True), (6, "sigmoid", False))},
        {"pooling": "max", "relative_positions": True, "pool_specials": False},
        {"pooling": "first", "relative_positions": True, "activation": "relu"},
        {"pool_specials": False, "projections": ((16, "layer_norm", True), (5, "swish", True))},
    )
]
CASES += [
    ("rotary", SIZES | {"max_length_tokens": 160} | options)
    for options in (
        {"norm_bias": True, "local_layers": (1,), "window": 2, "pool_specials": False},
        {"norm": "rms", "causal": True, "pooling": "last", "specials": ((), ("eos",))}
        | {"query_key_norm": True, "heads": 4, "kv_heads": 2, "head_width": 6, "query_scale": 0.3}
        | {"embedding_norm": False, "activation": "swish", "rope": (100.0, "linear", 2.0)},
        {"query_key_norm": True, "pooling": "max", "specials": (("bos", "bos"), ())}
        | {"pool_specials": False, "rope": (50.0, "yarn", 4.0, 8.0, 1.0, 10.0, 1.25)},
        {"local_layers": (0, 1), "window": 1, "local_rope": (50.0, "llama3", 4.0, 1.0, 8.0, 9.0)},
        {"norm": "rms", "norm_placement": "both", "causal": True, "local_layers": (0,)}
        | {"window": 3, "embedding_scale": 4.0, "activation": "gelu_tanh", "kv_heads": 1}
        | {"local_rope": (50.0,), "projections": ((8, "identity", False),), "normalize": True},
        {"norm_placement": "post", "final_norm": False, "pooling": "max", "attention_bias": True}
        | {"ffn_inner_bias": True, "ffn_outer_bias": True},
        {"pooling": "first", "layers": 0, "norm": "rms"},
    )
]
NAMES = [f"{family}-{'-'.join(map(str, options.values()))}" for family, options in CASES]


def made(family, options):
    """The module, the form, and random parameters as the module and the form take them."""
    module = build_encoder(family, vocab_size=VOCAB_SIZE, **options)
    form = FORMS[family](vocab_size=VOCAB_SIZE, **options)
    generator = np.random.default_rng(0)
    params = {
        tuple(name.split("/")): generator.normal(0, 0.4, shape).astype(dtype)
        for name, (shape, dtype) in form.parameters.items()
    }
    return module, form, unflatten_dict(params)


def sentences(form, lengths=LENGTHS):
    """The same random sentences, packed and padded."""
    tokens = np.random.default_rng(1).integers(3, VOCAB_SIZE, lengths.sum()).astype(np.int32)
    padded = np.full((len(lengths), lengths[0] + 3), form.pad_id, np.int32)
    padded[np.arange(padded.shape[1]) < lengths[:, None]] = tokens
    return Packed(tokens, lengths), padded


@pytest.mark.parametrize(("family", "options"), CASES, ids=NAMES)
def test_vectors_and_parameters_are_those_of_the_module(family, options):
    module, form, params = made(family, options)
    assert parameter_shapes(module) == (form.parameters, form.dim)
    assert form.specials == module.specials
    packed, padded = sentences(form)
    expected = module.apply({"params": params}, padded)
    found = form.encode(params, packed)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize("family", FORMS)
def test_a_form_takes_what_determines_the_vectors(family):
    module = ENCODERS[family]
    arguments = {field.name for field in dataclasses.fields(module)} - {"parent", "name"}
    arguments -= {*module.training_only, "dropout_generator", "dtype"}
    assert {field.name for field in dataclasses.fields(FORMS[family])} == arguments
    default = module(vocab_size=VOCAB_SIZE)
    for field in dataclasses.fields(FORMS[family](vocab_size=VOCAB_SIZE)):
        if field.name != "vocab_size":
            assert field.default == getattr(default, field.name), field.name


def test_long_sentences_attend_in_parts(monkeypatch):
    monkeypatch.setattr(layers, "_QUERIES_AT_LEAST", 1)
    for family, options, longest in (
        ("tlaser", {"pooling": "mean"}, 40),
        ("bert", {"relative_positions": True, "pool_specials": False}, 150),
        ("bert", {"relative_positions": True, "pooling": "first"}, 150),
        ("rotary", {"local_layers": (1,), "window": 9, "max_length_tokens": 153}, 150),
        ("rotary", {"local_layers": (0,), "window": 5, "causal": True, "kv_heads": 1}, 150),
    ):
        module, form, params = made(family, SIZES | options)
        packed, padded = sentences(form, np.array([longest, longest, 33, 5, 5, 5]))
        expected = module.apply({"params": params}, padded)
        for scores in (1, 200, 5000):  # a query at a time; some queries; some sentences
            monkeypatch.setattr(layers, "_SCORES_AT_ONCE", scores)
            np.testing.assert_allclose(form.encode(params, packed), expected, atol=1e-5)


@pytest.mark.parametrize(("family", "options"), CASES, ids=NAMES)
def test_rows_in_blocks_change_nothing(family, options, monkeypatch):
    _, form, params = made(family, options)
    packed, _ = sentences(form)
    expected = form.encode(params, packed).copy()
    monkeypatch.setattr(layers, "_BLOCK", 40)
    np.testing.assert_allclose(form.encode(params, packed), expected, atol=1e-5)


def test_a_sentence_without_tokens():
    for family, options in CASES:
        if family in ("bert", "rotary"):  # what projections make of zeros; others have none
            module, form, params = made(family, options)
            expected = module.apply({"params": params}, np.full((1, 3), form.pad_id, np.int32))
            np.testing.assert_allclose(form.of_nothing(params), expected[0], atol=1e-5)


def test_a_sentence_does_not_depend_on_the_others():
    families = ("tlaser", SIZES), ("dual", SIZES), ("laser", {"width": 8}), ("rotary", SIZES)
    for family, options in families:
        _, form, params = made(family, options)
        packed, _ = sentences(form)
        together = form.encode(params, packed)
        for row, (start, length) in enumerate(zip(packed.starts, packed.lengths)):
            alone = Packed(packed.tokens[start : start + length], np.array([length]))
            np.testing.assert_allclose(form.encode(params, alone)[0], together[row], atol=1e-5)


@pytest.mark.parametrize(("family", "options"), CASES, ids=NAMES)
def test_memory_of_earlier_sentences_changes_nothing(family, options):
    _, form, params = made(family, options)
    packed, _ = sentences(form)
    expected = form.encode(params, packed)
    for lengths in (LENGTHS[:2], LENGTHS, LENGTHS * 3):
        memory = {}
        other, _ = sentences(form, lengths)
        form.encode(params, Packed(other.tokens, lengths, memory))
        for array in memory.values():
            array[:] = np.nan
        found = form.encode(params, Packed(packed.tokens, LENGTHS, memory))
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(("family", "options"), CASES, ids=NAMES)
def test_threads_change_no_bit(family, options):
    _, form, params = made(family, options)
    packed, _ = sentences(form)
    expected = form.encode(params, packed)
    with ThreadPoolExecutor(1) as executor:
        threaded = Packed(packed.tokens, LENGTHS, executor=executor)
        np.testing.assert_array_equal(form.encode(params, threaded), expected)


def test_an_error_in_another_thread_is_raised():
    with ThreadPoolExecutor(1) as executor:
        packed = Packed(np.arange(LENGTHS.sum()), LENGTHS, executor=executor)
        with pytest.raises(ZeroDivisionError):
            packed.run_each(lambda number: 1 / (1 - number), 2)


def test_layer_norm_by_the_equation():
    generator = np.random.default_rng(0)
    states = generator.normal(3, 2, (5, 7)).astype(np.float32)
    params = {"scale": generator.normal(size=7), "bias": generator.normal(size=7)}
    params = {name: value.astype(np.float32) for name, value in params.items()}
    exact = states.astype(np.float64)
    centered = exact - exact.mean(1, keepdims=True)
    expected = centered / np.sqrt(centered.var(1, keepdims=True) + 1e-5)
    expected = expected * params["scale"] + params["bias"]
    np.testing.assert_allclose(layers.layer_norm(states, params, 1e-5), expected, atol=1e-5)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_by_their_definitions(name):
    x = np.concatenate([np.linspace(-15, 15, 100_001), [-1e15, -200, 200, 1e15]])
    with np.errstate(over="ignore"):
        sigmoid = 1 / (1 + np.exp(-x))
    cubic = np.sqrt(2 / np.pi) * (x + 0.044715 * np.clip(x, -1e9, 1e9) ** 3)
    expected = {
        "gelu": x * ndtr(x),
        "gelu_tanh": x * (1 + np.tanh(cubic)) / 2,
        "identity": x,
        "relu": np.maximum(x, 0),
        "sigmoid": sigmoid,
        "swish": x * sigmoid,
        "tanh": np.tanh(x),
    }[name]
    found = x.astype(np.float32)
    layers.ACTIVATIONS[name](found)
    np.testing.assert_allclose(found, expected, rtol=3e-7, atol=1e-6)


def test_groups_are_sentences_of_one_length():
    packed = Packed(np.arange(LENGTHS.sum()), LENGTHS)
    groups = list(packed.groups())
    assert [(g[0].stop - g[0].start, g[2]) for g in groups] == [
        (2, 9),
        (3, 7),
        (1, 4),
        (1, 2),
        (2, 1),
    ]
    assert [g[1].stop for g in groups] == [18, 39, 43, 45, 47]
    few = list(packed.groups(2 * 7 * 7))
    assert [(g[0].stop - g[0].start, g[2]) for g in few][:4] == [(1, 9), (1, 9), (2, 7), (1, 7)]
    assert [g[1].start for g in few[1:]] == [g[1].stop for g in few[:-1]]
    np.testing.assert_array_equal(packed.positions[:20], [*range(9), *range(9), 0, 1])


def test_wrong_options_are_refused():
    for family, options, message in (
        ("tlaser", {"heads": 3}, "heads=3 must divide width=1024"),
        ("tlaser", {"width": 15, "heads": 3}, "width=15 must be even"),
        ("tlaser", {"pooling": "middle"}, "pooling='middle' must be one of first, mean"),
        ("dual", {"norm": "past"}, "encoder.norm='past'.*did you mean post"),
        ("laser", {"pooling": "first"}, "sees little but the first token"),
        ("laser", {"unidirectional_layers": 2}, "between 0 and the 1 layers"),
        ("laser", {"width": 7}, "width=7 must be even"),
        ("bert", {"activation": "gilu"}, "activation='gilu'.*did you mean gelu"),
        ("bert", {"activation": "layer_norm"}, "activation='layer_norm' must be one of gelu"),
        ("bert", {"heads": 5}, "encoder.heads=5 must divide encoder.width=768"),
        ("rotary", {"heads": 5}, "encoder.heads=5 must divide encoder.width=768, unless"),
        ("rotary", {"kv_heads": 5}, "encoder.kv_heads=5 must divide encoder.heads=12"),
        ("rotary", {"kv_heads": -2}, "encoder.kv_heads=-2 must be at least 0"),
        ("rotary", {"heads": 0}, "encoder.heads=0 must be at least 1"),
        ("rotary", {"window": 0}, "encoder.window=0 must be at least 1"),
        ("rotary", {"head_width": 7}, "encoder.head_width=7 must be even"),
        ("rotary", {"rope": (1e4, "yarrn", 1.0)}, "encoder.rope='yarrn' must be one of linear"),
        ("rotary", {"local_rope": (1e4, ["yarn"])}, "encoder.local_rope=.* must be .θ,. or"),
        ("rotary", {"rope": ()}, "encoder.rope=.. must be .θ,. or"),
        ("rotary", {"specials": (("bos",),)}, "must be the names before and after a sentence"),
    ):
        with pytest.raises(ValueError, match=message):
            FORMS[family](vocab_size=VOCAB_SIZE, **options)


def test_a_sentence_beyond_the_positions_is_refused():
    for family in ("dual", "bert", "rotary"):
        _, form, params = made(family, SIZES | {"max_length_tokens": 8})
        with pytest.raises(ValueError, match="length 9; encoder.max_length_tokens=8 is the long"):
            form.encode(params, sentences(form)[0])


def test_forms_import_no_jax():
    code = "import sys; from xling_jax.models.forms import FORMS; [FORMS[name] for name in FORMS]"
    code += "; print('jax' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "False"
