"""Static encoders without JAX: the same vectors as the Flax module, nothing heavy imported."""

import json
import subprocess
import sys

import jax
import numpy as np
import pytest

import xling_jax
from xling_jax.cli.main import main
from xling_jax.encode.model_directory import load_model, save_model
from xling_jax.encode.static import StaticBackend, principal_axes
from xling_jax.models.static_form import StaticForm, choose_keys
from xling_jax.text.vocab import Vocab

FORMS = {
    "static": {"width": 16, "features": ("pairs", "triples"), "feature_rows": 64},
    "narrow": {"width": 16, "features": ("pairs",), "feature_rows": 64, "feature_width": 8},
    "dual": {"width": 16, "layers": 0, "pooling": "weighted_mean"},
}


def save(directory, vocab, family, arguments, params, **more):
    save_model(
        directory,
        family=family,
        encoder_args=arguments,
        params=params,
        vocab=vocab,
        languages=("de", "en"),
        max_length_tokens=25,
        training={},
        **more,
    )


def random_params(form, vocab, sentences):
    """Random parameters, and the keys of what the sentences hold."""
    generator = np.random.default_rng(0)
    shapes = {name: shape for name, (shape, _) in form.parameters.items()}
    params = {name: generator.normal(size=shape).astype("f4") for name, shape in shapes.items()}
    if form.features:
        tokens = vocab.encode(sentences)
        offsets = np.cumsum([0, *map(len, tokens)])
        params["feature_keys"], share = choose_keys(form, [(np.concatenate(tokens), offsets)])
        assert 0.01 < share < 0.99
    return params


STORED = [
    f"{storage} {form}"
    for storage in ("int8", "int4", "mixed", "pq")
    for form in ("static", "narrow")
]


@pytest.fixture(params=[*FORMS, *STORED])
def static_directory(request, vocab, sentences, tmp_path):
    from xling_jax.models import registry

    *storage, form = request.param.split()
    family = "dual" if form == "dual" else "static"
    arguments = FORMS[form] | {"pad_id": vocab.pad_id}
    module = registry.build_encoder(family, vocab_size=vocab.size, **arguments)
    if family == "static":
        params = random_params(module.form, vocab, sentences)
    else:
        tokens, generator = np.ones((1, 8), np.int32), np.random.default_rng(0)
        shapes = jax.eval_shape(module.init, jax.random.key(0), tokens)["params"]
        params = jax.tree.map(lambda leaf: generator.normal(size=leaf.shape).astype("f4"), shapes)
    if storage:
        _, params = module.form.quantized(params, *storage)
        arguments["storage"] = storage[0]
    save(tmp_path / "m", vocab, family, arguments, params)
    return tmp_path / "m"


def test_vectors_are_those_of_the_flax_module(static_directory, sentences):
    encoder = xling_jax.load(static_directory)
    assert isinstance(encoder.backend, StaticBackend)
    found = encoder.encode(sentences)
    spec = load_model(static_directory)
    tokens = np.full((len(sentences), 25), encoder.vocab.pad_id, np.int32)
    for row, ids in zip(tokens, encoder.vocab.encode(sentences)):
        row[: min(len(ids), 25)] = ids[:25]
    expected = spec.module.apply({"params": spec.params}, tokens)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    # Few sentences are summed in another way.
    np.testing.assert_allclose(encoder.encode(sentences[48:53]), found[48:53], atol=1e-5)
    assert not found[50].any()  # blank
    assert encoder.with_params(spec.params).encode(["la"]).shape == (1, 16)


def test_with_its_own_parameters_a_stored_encoder_stays_as_it_is():
    mini = xling_jax.load("mini")
    np.testing.assert_array_equal(
        mini.with_params(mini.params).encode(["Hello"]), mini.encode(["Hello"])
    )


@pytest.mark.parametrize(
    ("storage", "step", "cosine", "share"),
    [
        ("int8", 1 / 127, 0.9995, 0.3),
        ("mixed", 1 / 127, 0.98, 0.3),
        ("int4", 1 / 7, 0.98, 0.2),
    ],
)
def test_few_bits_are_close_to_what_was_trained(
    vocab, tmp_path, sentences, storage, step, cosine, share
):
    form = StaticForm(vocab.size, 64, ("pairs",), 32, vocab.pad_id)
    stored = random_params(form, vocab, sentences)
    small, reduced = form.quantized(stored, storage)
    assert {name: (v.shape, str(v.dtype)) for name, v in reduced.items()} == small.parameters
    rows = stored["embedding"] * stored["token_weight"][:, None]
    kept = small.trainable(reduced)["embedding"]
    largest = np.abs(rows).max(axis=1, keepdims=True)
    fitting = np.round(rows / largest / step) * step * largest
    if storage != "int4":
        np.testing.assert_allclose(kept, fitting, atol=1e-6)
    errors, usual = (np.square(found - rows).sum(axis=1) for found in (kept, fitting))
    assert (errors <= usual * 1.0001).all()
    again, same = small.quantized(reduced, storage)
    assert again == small
    np.testing.assert_array_equal(same["rows"], reduced["rows"])
    arguments = {"width": 64, "features": ("pairs",), "feature_rows": 32, "pad_id": vocab.pad_id}
    save(tmp_path / "exact", vocab, "static", arguments, stored)
    save(tmp_path / "small", vocab, "static", arguments | {"storage": storage}, reduced)
    texts = [text for text in sentences if text.strip()]
    exact, less = (
        xling_jax.load(tmp_path / name).encode(texts, normalize=True) for name in ("exact", "small")
    )
    assert (exact * less).sum(axis=1).min() > cosine
    sizes = [
        (tmp_path / name / "encoder.safetensors").stat().st_size for name in ("exact", "small")
    ]
    assert sizes[1] < share * sizes[0]


def test_four_bits_share_bytes_and_have_the_best_factor(vocab):
    form = StaticForm(vocab.size, 4, pad_id=vocab.pad_id)
    rows = np.zeros((form.token_rows, 4), np.float32)
    rows[1], rows[2] = (7, -7, 3, 0), (10, 1, 1, 1)
    stored = {"embedding": rows, "token_weight": np.full(len(rows), 2, np.float32)}
    small, reduced = form.quantized(stored, "int4")
    assert small.parameters["rows"] == ((form.token_rows, 2), "uint8")
    np.testing.assert_array_equal(reduced["rows"][0], [8 + 8 * 16] * 2)  # zeros
    np.testing.assert_array_equal(reduced["rows"][1], [15 + 1 * 16, 11 + 8 * 16])
    assert reduced["factor"][1] == 2 and reduced["factor"][0] == 0
    # Of [20, 2, 2, 2]: the factor that fits 20 is 20 / 7, and rounds each 2 to it.
    shrinks = np.array([1, 0.9, 0.8, 0.7, 0.6, 0.5]) * 20 / 7
    errors = [
        (20 - min(np.round(20 / f), 7) * f) ** 2 + 3 * (2 - np.round(2 / f) * f) ** 2
        for f in shrinks
    ]
    np.testing.assert_allclose(reduced["factor"][2], shrinks[np.argmin(errors)], rtol=1e-6)
    with pytest.raises(ValueError, match="width=5 must be a multiple of 2"):
        StaticForm(vocab.size, 5, storage="int4")


def test_product_quantization_takes_the_nearest_centroids_and_the_best_factor(vocab, sentences):
    form = StaticForm(vocab.size, 16, ("pairs", "triples"), 3000, vocab.pad_id, feature_width=12)
    generator = np.random.default_rng(0)
    stored = random_params(form, vocab, sentences)
    rows = generator.normal(size=(3000, 12)).astype("f4") * np.linspace(2, 1, 12, dtype="f4")
    rows[7] = 0
    stored["feature_embedding"] = rows
    stored["feature_weight"][:] = generator.uniform(0.1, 3, 3000)
    small, reduced = form.quantized(stored, "pq")
    assert {name: (v.shape, str(v.dtype)) for name, v in reduced.items()} == small.parameters
    assert small.parameters["narrow_rows"] == ((3000, 3), "uint8")
    rows = rows * stored["feature_weight"][:, None]
    kept = small.trainable(reduced)["feature_embedding"]
    assert not kept[7].any()
    # Centroids by hand: of all of a group's, the nearest to the row of length 1.
    units = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9)
    codebooks = reduced["codebooks"].astype(np.float64)
    for row in (0, 1, 2999):
        found = []
        for group, codebook in enumerate(codebooks):
            distances = np.square(codebook - units[row, 4 * group : 4 * group + 4]).sum(axis=1)
            assert reduced["narrow_rows"][row, group] == distances.argmin()
            found.extend(codebook[distances.argmin()])
        factor = np.dot(found, rows[row]) / np.dot(found, found)  # of the least squared error
        np.testing.assert_allclose(kept[row], np.array(found) * factor, rtol=1e-4, atol=1e-6)
    # Two bits a number, one by one, leave at best 0.1175 of a Gaussian's variance (Lloyd and Max).
    assert np.square(kept - rows).sum() < 0.11 * np.square(rows).sum()


def test_product_quantization_keeps_few_different_rows_as_they_are(vocab, sentences):
    form = StaticForm(vocab.size, 8, ("pairs",), 64, vocab.pad_id)
    stored = random_params(form, vocab, sentences)
    small, reduced = form.quantized(stored, "pq")
    rows = stored["feature_embedding"] * stored["feature_weight"][:, None]
    np.testing.assert_allclose(small.trainable(reduced)["feature_embedding"], rows, atol=1e-5)


@pytest.mark.parametrize("first", [0, 3])
def test_principal_axes_are_eigenvectors_of_fixed_sign(first):
    vectors = np.random.default_rng(0).normal(size=(50, 8)) * np.linspace(1, 3, 8)
    axes = principal_axes([vectors[:20].astype("f4"), vectors[20:].astype("f4")], first)
    assert axes.dtype == np.float32
    expected = np.zeros((8, 8))
    for part in (slice(first), slice(first, None)):
        expected[part, part] = np.linalg.svd(vectors[:, part])[2].T
    largest = expected[np.abs(expected).argmax(axis=0), np.arange(8)]
    np.testing.assert_allclose(axes, expected * np.sign(largest), atol=1e-5)
    assert principal_axes([np.zeros((3, 8))]) is None


@pytest.mark.parametrize("count", [1, 20])
def test_a_text_without_tokens_has_the_vector_0_even_where_lengths_are_1(vocab, tmp_path, count):
    form = StaticForm(vocab.size, 4, pad_id=vocab.pad_id)
    params = random_params(form, vocab, [])
    arguments = {"width": 4, "pad_id": vocab.pad_id, "normalize": True}
    save(tmp_path / "m", vocab, "static", arguments, params)
    found = xling_jax.load(tmp_path / "m").encode(["", "la mo"] * count)
    np.testing.assert_array_equal(found[::2], 0)
    np.testing.assert_allclose(np.linalg.norm(found[1::2], axis=1), 1, rtol=1e-6)


def test_other_dtypes_are_refused(static_directory):
    assert xling_jax.load(static_directory, "float32").dtype == "float32"
    with pytest.raises(ValueError, match="dtype='bfloat16': static encoders compute in float32"):
        xling_jax.load(static_directory, "bfloat16")


def test_neither_jax_nor_scipy_is_imported_for_a_sentence(static_directory):
    code = f"""
import json, sys, xling_jax
encoder = xling_jax.load({str(static_directory)!r})
vectors = encoder.encode(["la mo ti", "ren"])
heavy = ("jax", "flax", "scipy", "sklearn", "tensorflow", "ml_collections")
print(json.dumps([list(vectors.shape), [name for name in heavy if name in sys.modules]]))
"""
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout
    assert json.loads(output) == [[2, 16], []]


def test_export_scales_no_shorter_vectors_unasked(vocab, sentences, tmp_path, capsys):
    arguments = {"width": 16, "pad_id": vocab.pad_id, "normalize": True}
    params = random_params(StaticForm(vocab.size, **arguments), vocab, sentences)
    save(tmp_path / "m", vocab, "static", arguments, params, truncate_dim=8)
    export = ["export", "--model", str(tmp_path / "m"), "--output", str(tmp_path / "small")]
    assert main([*export, "--storage", "int8"]) == 2
    assert "keeps 8 dimensions of vectors of length 1, and its new" in capsys.readouterr().err
    assert main([*export, "--storage", "int8", "--truncate-dim", "8"]) == 0
    vectors = xling_jax.load(tmp_path / "small").encode(sentences[:5])
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-3)


@pytest.mark.parametrize("feature_width", [0, 6])
def test_export_rotates_and_shrinks_a_model(feature_width, vocab, sentences, tmp_path):
    arguments = {"width": 16, "features": ["pairs"], "feature_rows": 64, "pad_id": vocab.pad_id}
    arguments["feature_width"] = feature_width
    params = random_params(StaticForm(vocab.size, **arguments), vocab, sentences)
    params["embedding"][:, 3] *= 10  # the first principal axis
    save(tmp_path / "m", vocab, "static", arguments, params)
    (tmp_path / "text").write_text("\n".join(sentences), encoding="utf-8")
    export = ["export", "--model", str(tmp_path / "m"), "--output", str(tmp_path / "small")]
    options = ["--storage", "int8", "--principal-axes", str(tmp_path / "text")]
    assert main([*export, *options]) == 0
    whole = xling_jax.load(tmp_path / "m").encode(sentences, normalize=True)
    small = xling_jax.load(tmp_path / "small").encode(sentences, normalize=True)
    np.testing.assert_allclose(small @ small.T, whole @ whole.T, atol=0.03)
    assert main([*export[:-1], str(tmp_path / "narrow"), *options, "--truncate-dim", "6"]) == 0
    assert main([*export[:-1], str(tmp_path / "exact"), *options[2:]]) == 0
    assert main([*export[:-1], str(tmp_path / "4"), *options[2:], "--truncate-dim", "4"]) == 0
    few, all_ = (xling_jax.load(tmp_path / name).encode(sentences) for name in ("4", "exact"))
    np.testing.assert_allclose(few, all_[:, :4], atol=1e-5)
    odd = ["--storage", "int4", "--truncate-dim", "5"]
    assert main([*export[:-1], str(tmp_path / "odd"), *odd]) == 2
    odd[1:2], odd[4:] = ["mixed"], ["--feature-dim", "4"]  # tokens need no even number
    assert main([*export[:-1], str(tmp_path / "odd"), *odd]) == 0
    assert xling_jax.load(tmp_path / "odd").dim == 5
    narrow = xling_jax.load(tmp_path / "narrow")
    assert narrow.dim == 6 and load_model(tmp_path / "narrow").config["encoder"]["width"] == 6
    first = xling_jax.load(tmp_path / "small", truncate_dim=6).encode(sentences, normalize=True)
    found = narrow.encode(sentences, normalize=True)
    assert np.einsum("nd,nd->n", found, first)[first.any(1)].min() > 0.998
    kept = np.square(small).sum(0)
    for block in np.split(kept, [feature_width]):  # features stay within their dimensions
        assert (np.diff(block) < 0.01).all()
    assert kept[0] > 2 * kept[1]
    assert np.abs(np.corrcoef(small[:, 0], whole[:, 3])[0, 1]) > 0.99


def test_export_keeps_some_dimensions_of_features(vocab, sentences, tmp_path, capsys):
    arguments = {"width": 16, "features": ["pairs"], "feature_rows": 64, "pad_id": vocab.pad_id}
    params = random_params(StaticForm(vocab.size, **arguments), vocab, sentences)
    save(tmp_path / "m", vocab, "static", arguments, params)
    export = ["export", "--model", str(tmp_path / "m"), "--output"]
    assert main([*export, str(tmp_path / "some"), "--feature-dim", "6"]) == 0
    params["feature_embedding"][:, 6:] = 0
    save(tmp_path / "zeros", vocab, "static", arguments, params)
    expected, found = (xling_jax.load(tmp_path / n).encode(sentences) for n in ("zeros", "some"))
    np.testing.assert_allclose(found, expected, atol=1e-5)
    problems = {
        **dict.fromkeys(("0", "17", "9 --truncate-dim 8"), "must be from 1 to"),
        "5 --storage int4": "triples must be a multiple of 2; found 5; use --feature-dim 4",
        "5 --storage mixed": "--storage mixed: 2 numbers share a byte, so the dimensions of pairs",
        "6 --storage pq": "must be a multiple of 4; found 6; use --feature-dim 4",
        "2 --storage pq": "must be a multiple of 4; found 2; use --storage int8",
    }
    for wrong, problem in problems.items():
        assert main([*export, str(tmp_path / "x"), "--feature-dim", *wrong.split()]) == 2
        assert problem in capsys.readouterr().err
    plain = {name: value for name, value in params.items() if not name.startswith("feature")}
    save(tmp_path / "plain", vocab, "static", {**arguments, "features": []}, plain)
    export[2] = str(tmp_path / "plain")
    for wrong in ("--feature-dim 4", "--storage mixed", "--storage pq"):
        assert main([*export, str(tmp_path / "x"), *wrong.split()]) == 2
        assert "has tokens alone" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["axes", "vectors"])
def test_export_of_a_truncated_encoder_is_about_the_dimensions_it_uses(
    option, vocab, sentences, tmp_path
):
    form = StaticForm(vocab.size, 16, pad_id=vocab.pad_id)
    arguments = {"width": 16, "pad_id": vocab.pad_id}
    save(tmp_path / "a", vocab, "static", arguments, random_params(form, vocab, sentences))
    truncated = xling_jax.load(tmp_path / "a").truncated(6)
    truncated.save(tmp_path / "b")
    (tmp_path / "text").write_text("\n".join(sentences))
    np.save(tmp_path / "vectors.npy", np.eye(vocab.size, 2, dtype=np.float32))
    more = {"axes": ["--principal-axes", "text"], "vectors": ["--token-vectors", "vectors.npy"]}
    words = ["export", "--model", str(tmp_path / "b"), "--output", str(tmp_path / "c")]
    assert main([*words, more[option][0], str(tmp_path / more[option][1])]) == 0
    found, expected = xling_jax.load(tmp_path / "c").encode(sentences), truncated.encode(sentences)
    if option == "vectors":
        assert found.shape[1] == 8
        found = found[:, :6]
    np.testing.assert_allclose(found @ found.T, expected @ expected.T, rtol=1e-4, atol=1e-5)


def test_export_averages_runs(vocab, sentences, tmp_path, capsys):
    form = StaticForm(vocab.size, 16, ("pairs",), 64, vocab.pad_id)
    arguments = {"width": 16, "features": ["pairs"], "feature_rows": 64, "pad_id": vocab.pad_id}
    first = random_params(form, vocab, sentences)
    second = {name: value[::-1] * 2 for name, value in first.items()}
    second["feature_keys"] = first["feature_keys"]
    save(tmp_path / "a", vocab, "static", arguments, first)
    save(tmp_path / "b", vocab, "static", arguments, second)
    # One that is stored in 4 bits can be averaged as well.
    small = ["export", "--model", str(tmp_path / "b"), "--storage", "int4"]
    assert main([*small, "--output", str(tmp_path / "c")]) == 0
    average = ["export", "--model", str(tmp_path / "a"), "--average", *map(str, [tmp_path / "b"])]
    assert main([*average, str(tmp_path / "c"), "--output", str(tmp_path / "mean")]) == 0
    vectors = [xling_jax.load(tmp_path / name).encode(sentences) for name in "abc"]
    mean = xling_jax.load(tmp_path / "mean")
    np.testing.assert_allclose(mean.encode(sentences), np.mean(vectors, axis=0), atol=1e-5)
    assert load_model(tmp_path / "mean").config["training"]["averaged_runs"] == 3

    (tmp_path / "text").write_text("\n".join(sentences), encoding="utf-8")
    rotated = [*average, "--principal-axes", str(tmp_path / "text")]
    assert main([*rotated, "--output", str(tmp_path / "rotated")]) == 0
    found = xling_jax.load(tmp_path / "rotated").encode(sentences)
    expected = np.mean(vectors[:2], axis=0)
    np.testing.assert_allclose(found @ found.T, expected @ expected.T, rtol=1e-3, atol=1e-3)
    scaled = found / np.maximum(np.linalg.norm(found, axis=1, keepdims=True), 1e-9)
    products = scaled.T @ scaled  # its own principal axes, not those of the first run
    assert np.abs(products - np.diag(np.diag(products))).max() < 1e-3

    second["feature_keys"] = np.where(np.arange(64) == 0, 0, first["feature_keys"])
    save(tmp_path / "d", vocab, "static", arguments, second)
    save(tmp_path / "e", vocab, "static", arguments | {"feature_rows": 32}, halved(first))
    upper = Vocab(tmp_path / "a" / "sentencepiece.model", lowercase=not vocab.lowercase)
    save(tmp_path / "f", upper, "static", arguments, first)
    problems = {"d": "the same features", "e": "must be of the same form", "f": "and vocabulary as"}
    for name, problem in problems.items():
        refused = [*average, str(tmp_path / name), "--output", str(tmp_path / "refused")]
        assert main(refused) == 2
        assert problem in capsys.readouterr().err
        assert not (tmp_path / "refused").exists()


@pytest.mark.parametrize("feature_width", [0, 6])
def test_export_adds_dimensions_to_tokens(feature_width, vocab, sentences, tmp_path, capsys):
    arguments = {"width": 16, "features": ["pairs"], "feature_rows": 64, "pad_id": vocab.pad_id}
    arguments["feature_width"] = feature_width
    params = random_params(StaticForm(vocab.size, **arguments), vocab, sentences)
    save(tmp_path / "m", vocab, "static", arguments, params)
    more = np.random.default_rng(0).normal(size=(vocab.size, 3)).astype(np.float32)
    np.save(tmp_path / "more.npy", more)
    export = ["export", "--model", str(tmp_path / "m")]
    export += ["--token-vectors", str(tmp_path / "more.npy"), "--output"]
    assert main([*export, str(tmp_path / "wide")]) == 0
    before, wide = (xling_jax.load(tmp_path / name).encode(sentences) for name in ("m", "wide"))
    np.testing.assert_allclose(wide[:, :16], before, atol=1e-6)
    tokens = [ids[:25] for ids in vocab.encode(sentences)]  # the longest input
    means = [more[ids].mean(0) if len(ids) else np.zeros(3) for ids in tokens]
    np.testing.assert_allclose(wide[:, 16:], means, atol=1e-6)

    (tmp_path / "text").write_text("\n".join(sentences), encoding="utf-8")
    axes = ["--principal-axes", str(tmp_path / "text")]
    assert main([*export, str(tmp_path / "rotated"), *axes]) == 0
    rotated = xling_jax.load(tmp_path / "rotated").encode(sentences)
    np.testing.assert_allclose(rotated @ rotated.T, wide @ wide.T, rtol=1e-3, atol=1e-3)
    assert main([*export, str(tmp_path / "narrow"), *axes, "--truncate-dim", "16"]) == 0
    narrow = xling_jax.load(tmp_path / "narrow").encode(sentences)
    np.testing.assert_allclose(narrow, rotated[:, :16], atol=1e-5)

    more[7, 1] = np.inf
    for wrong, problem in ((more, "not finite"), (more[1:], f"of shape [{vocab.size}, any]")):
        np.save(tmp_path / "more.npy", wrong)
        assert main([*export, str(tmp_path / "refused")]) == 2
        assert problem in capsys.readouterr().err
    (tmp_path / "more.npy").write_bytes(b"no array")
    assert main([*export, str(tmp_path / "refused")]) == 2
    assert "more.npy: must be an intact .npy file" in capsys.readouterr().err


def halved(params):
    """The parameters with half of the feature rows."""
    return {n: value[:32] if n.startswith("feature") else value for n, value in params.items()}


@pytest.mark.parametrize(
    "arguments",
    ["--model m", "--model m --workdir w --storage int8", "--workdir w", "--checkpoint 3", ""],
)
def test_export_needs_a_checkpoint_or_a_form(arguments, tmp_path, capsys):
    assert main(["export", *arguments.split(), "--output", str(tmp_path / "x")]) == 2
    assert "give --workdir and --checkpoint, or --model with" in capsys.readouterr().err


def test_export_refuses_other_families(model_directory, tmp_path, capsys):
    export = ["export", "--model", str(model_directory), "--output", str(tmp_path / "small")]
    assert main([*export, "--storage", "int8"]) == 2
    assert "is of family" in capsys.readouterr().err
