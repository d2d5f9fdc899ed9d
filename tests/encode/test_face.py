"""The encoder in the words of sentence-transformers."""

import concurrent.futures
import inspect
import multiprocessing
import pickle
import shutil

import numpy as np
import pytest

import xling_jax
from xling_jax.encode.encoder import l2_normalize
from xling_jax.encode.model_directory import load_model, save_model
from xling_jax.files.quantization import quantize

PROMPTS = {"query": "la mo: ", "passage": "ren su: "}


@pytest.fixture
def prompted(tmp_path, model_arguments):
    """A model with prompts and a width to keep."""
    given = {"prompts": PROMPTS, "default_prompt": "passage", "truncate_dim": 10}
    results = {"dev/p_at_1": 0.5}
    save_model(tmp_path / "prompted", **model_arguments, **given, results=results)
    return xling_jax.load(tmp_path / "prompted")


def test_one_string_gives_one_vector(encoder, sentences):
    one = encoder.encode(sentences[0])
    assert one.shape == (encoder.dim,)
    np.testing.assert_array_equal(one, encoder.encode(sentences[:1])[0])


def test_both_spellings_mean_the_same_and_do_not_contradict(encoder, sentences, capsys):
    unit = encoder.encode(sentences, normalize=True)
    np.testing.assert_array_equal(encoder.encode(sentences, normalize_embeddings=True), unit)
    same = encoder.encode(sentences, normalize=True, normalize_embeddings=True)
    np.testing.assert_array_equal(same, unit)
    assert not capsys.readouterr().err
    encoder.encode(sentences, show_progress_bar=True)
    assert "sentence" in capsys.readouterr().err


@pytest.mark.parametrize(
    "wrong, way_out",
    [
        ({"output_value": "token_embeddings"}, "output_value='token_embeddings' does not apply"),
        ({"lang": "de"}, "lang='de' does not apply here; leave it out"),
        ({"precision": "uint8"}, "precision"),
        ({"prompt_name": "query"}, "prompt_name='query' must be one of .* .none.; or give"),
        ({"prompt": "a", "prompt_name": "b"}, "not both"),
        ({"truncate_dim": 99}, "truncate_dim=99 must be from 1 to 16"),
        ({"ranges": np.zeros((2, 16))}, "ranges must be given for precision='int8'"),
        ({"precision": "int8", "ranges": np.zeros((2, 5))}, r"ranges must be \[2, 16\]"),
    ],
)
def test_what_does_not_apply_is_refused_with_the_way_out(encoder, wrong, way_out):
    with pytest.raises(ValueError, match=way_out):
        encoder.encode(["la mo"], **wrong)


def test_unknown_arguments_are_refused(encoder):
    with pytest.raises(TypeError, match="unexpected keyword argument 'normalise'"):
        encoder.encode(["la"], normalise=True)


def test_prompts_go_before_the_text(prompted, sentences):
    plain = prompted.encode(sentences, prompt="")
    assert plain.shape == (len(sentences), 10)

    def expected(prompt):
        return prompted.encode([prompt + text for text in sentences], prompt="")

    query, passage = expected(PROMPTS["query"]), expected(PROMPTS["passage"])
    assert np.abs(query - passage).max() > 1e-3
    for found, wanted in {
        "default": (prompted.encode(sentences), passage),
        "name": (prompted.encode(sentences, prompt_name="query"), query),
        "text": (prompted.encode(sentences, prompt="la mo: "), query),
        "query": (prompted.encode_query(sentences), query),
        "document": (prompted.encode_document(sentences), passage),
        "given": (prompted.encode_query(sentences, prompt=""), plain),
        "other name": (prompted.encode_query(sentences, prompt_name="passage"), passage),
        "stream": (np.concatenate([*prompted.encode_stream(iter(sentences))]), passage),
        "documents": (prompted.encode_documents([[text] for text in sentences]), passage),
    }.values():
        np.testing.assert_array_equal(found, wanted)
    other = prompted.with_prompt(prompt_name="query")
    np.testing.assert_array_equal(other.encode(sentences), query)
    assert other.fingerprint != prompted.fingerprint


def test_queries_of_models_without_a_prompt_for_them_have_none(tmp_path, model_arguments):
    given = {"prompts": {"other": "vi bor "}, "default_prompt": "other"}
    save_model(tmp_path / "m", **model_arguments, **given)
    model = xling_jax.load(tmp_path / "m")
    plain = model.encode(["la mo"], prompt="")
    np.testing.assert_array_equal(model.encode_query(["la mo"]), plain)
    np.testing.assert_array_equal(model.encode_document(["la mo"]), plain)
    assert np.abs(model.encode(["la mo"]) - plain).max() > 1e-3


def test_packed_documents_leave_room_for_the_prompt(prompted, sentences):
    counts = [len(inputs) for inputs in prompted.document_inputs([sentences], "packed")]
    free = [len(i) for i in prompted.with_prompt("").document_inputs([sentences], "packed")]
    assert counts[0] > free[0]


def test_a_recorded_width_is_the_default_and_may_be_changed(prompted, sentences):
    whole = prompted.encode(sentences, truncate_dim=16)
    assert whole.shape[1] == 16 and prompted.get_sentence_embedding_dimension() == 10
    np.testing.assert_array_equal(prompted.encode(sentences), whole[:, :10])
    unit = prompted.encode(sentences, truncate_dim=4, normalize=True)
    np.testing.assert_allclose(unit, l2_normalize(whole[:, :4]), atol=1e-7)
    assert prompted.truncated(4).get_embedding_dimension() == 4


def test_similarities_are_cosines_in_float64(encoder):
    generator = np.random.default_rng(0)
    one, other = (generator.normal(size=(n, 5)) for n in (4, 3))
    cosines = (one @ other.T) / np.linalg.norm(one, axis=1)[:, None]
    cosines /= np.linalg.norm(other, axis=1)
    np.testing.assert_allclose(encoder.similarity(one, other), cosines, atol=1e-6)
    found = encoder.similarity_pairwise(one[:3], other)
    np.testing.assert_allclose(found, np.diag(cosines[:3]), atol=1e-6)
    assert encoder.similarity(one[0], other).shape == (1, 3)
    with pytest.raises(ValueError, match="must have as many rows; got 4 and 3"):
        encoder.similarity_pairwise(one, other)
    with pytest.raises(ValueError, match="same dim; got 5 and 4"):
        encoder.similarity(one, other[:, :4])


def test_a_saved_model_is_the_model(prompted, sentences, tmp_path):
    prompted.save(tmp_path / "copy")
    copy = xling_jax.load(tmp_path / "copy")
    assert copy.fingerprint == prompted.fingerprint
    saved = load_model(tmp_path / "copy")
    assert (saved.prompts, saved.config["training"]) == (PROMPTS, {"steps": 0})
    assert "| dev/p_at_1 | 0.5 |" in (tmp_path / "copy/README.md").read_text(encoding="utf-8")
    np.testing.assert_array_equal(copy.encode(sentences), prompted.encode(sentences))
    with pytest.raises(FileExistsError, match="overwrite=True"):
        prompted.save(tmp_path / "copy")
    prompted.truncated(4).with_max_length(20).save(tmp_path / "copy", overwrite=True)
    small = xling_jax.load(tmp_path / "copy")
    assert (small.dim, small.max_length_tokens) == (4, 20)
    assert "None recorded." in (tmp_path / "copy/README.md").read_text(encoding="utf-8")
    expected = prompted.with_max_length(20).encode(sentences, truncate_dim=4)
    np.testing.assert_array_equal(small.encode(sentences), expected)
    small.prompts = {"own": "vi "}
    small.default_prompt = "own"
    small.save(tmp_path / "copy", overwrite=True)
    assert xling_jax.load(tmp_path / "copy").prompts == {"own": "vi "}


def test_only_what_a_directory_holds_is_saved_and_pickled(encoder, prompted, tmp_path):
    for other in (encoder, prompted.with_params(prompted.params)):
        with pytest.raises(ValueError, match="only encoders loaded from .* can be saved"):
            other.save(tmp_path / "m")
        with pytest.raises(ValueError, match="only encoders .* can be pickled"):
            pickle.dumps(other)


def test_a_spawned_worker_gets_the_same_vectors(prompted, sentences, tmp_path):
    chosen = prompted.truncated(4).with_prompt("mo ").with_max_length(30)
    expected = chosen.encode(sentences)
    shutil.rmtree(tmp_path / "prompted")  # the worker may be on another machine
    spawn = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=spawn) as pool:
        np.testing.assert_array_equal(pool.submit(chosen.encode, sentences).result(), expected)
    assert repr(pickle.loads(pickle.dumps(chosen))) == repr(chosen)


def test_static_models_are_pickled_and_saved(sentences, tmp_path):
    mini = xling_jax.load("mini")
    mini.save(tmp_path / "mini")
    for other in (pickle.loads(pickle.dumps(mini)), xling_jax.load(tmp_path / "mini")):
        np.testing.assert_array_equal(other.encode(sentences), mini.encode(sentences))
        assert other.fingerprint == mini.fingerprint and other.calibration == mini.calibration


def test_quantized_vectors(encoder, sentences):
    vectors = encoder.encode(sentences)
    half = encoder.encode(sentences, precision="float16")
    np.testing.assert_array_equal(half, vectors.astype(np.float16))
    bits = encoder.encode(sentences, precision="ubinary", truncate_dim=10)
    np.testing.assert_array_equal(bits, np.packbits(vectors[:, :10] > 0, axis=1))

    ranges = encoder.learn_ranges(iter(sentences[:50]))
    wanted = [vectors[:50].min(axis=0), vectors[:50].max(axis=0)]
    np.testing.assert_allclose(ranges, wanted, atol=1e-5)
    codes = encoder.encode(sentences, precision="int8", ranges=ranges)
    assert codes.dtype == np.int8
    steps = (ranges[1] - ranges[0]) / 255
    back = (codes[:50] + 128.5) * steps + ranges[0]
    assert (np.abs(back - vectors[:50]) <= 0.5 * steps + 1e-5).all()
    with pytest.raises(ValueError, match="must be given for precision='int8'.*learn_ranges"):
        encoder.encode(sentences, precision="int8")


@pytest.mark.slow
def test_every_argument_of_sentence_transformers_has_an_answer(encoder, sentences):
    peer = pytest.importorskip("sentence_transformers").SentenceTransformer
    expected = encoder.encode(sentences)
    for method in ("encode", "encode_query", "encode_document"):
        parameters = [*inspect.signature(getattr(peer, method)).parameters.values()][2:]
        defaults = {p.name: p.default for p in parameters if p.default is not p.empty}
        assert {"precision", "prompt_name", "chunk_size"} <= defaults.keys()
        found = getattr(encoder, method)(sentences, **defaults)
        np.testing.assert_allclose(found, expected, atol=1e-6)
    for name in ("similarity", "similarity_pairwise", "save"):
        assert hasattr(peer, name) and hasattr(encoder, name)


@pytest.mark.slow
def test_codes_are_those_of_sentence_transformers():
    peer = pytest.importorskip("sentence_transformers.util.quantization").quantize_embeddings
    generator = np.random.default_rng(0)
    sample, vectors = (generator.normal(size=(n, 20)).astype(np.float32) for n in (300, 1000))
    sample[:, 7] = 0.25  # a dimension without a range
    vectors[:5] = 0
    ranges = np.stack([sample.min(axis=0), sample.max(axis=0)])
    wanted = peer(vectors, "int8", calibration_embeddings=sample)
    np.testing.assert_array_equal(quantize(vectors, "int8", ranges), wanted)
    for precision in ("float32", "binary", "ubinary"):
        found = quantize(vectors, precision)
        wanted = peer(vectors, precision)
        assert found.dtype == wanted.dtype
        np.testing.assert_array_equal(found, wanted)


def test_texts_come_in_what_people_hold_them_in(encoder):
    texts = ["la mo", "ti", ""]
    expected = encoder.encode(texts)
    held = {
        "tuple": lambda: tuple(texts),
        "generator": lambda: (text for text in texts),
        "keys": lambda: dict.fromkeys(texts).keys(),
        "objects": lambda: np.array(texts, object),
        "NumPy": lambda: np.array(texts),
        "NumPy 2": lambda: np.array(texts, np.dtypes.StringDType()),
        "pandas": lambda: pytest.importorskip("pandas").Series(texts, index=[7, 8, 9]),
        "polars": lambda: pytest.importorskip("polars").Series(texts),
        "Arrow": lambda: pytest.importorskip("pyarrow").array(texts),
        "chunks": lambda: pytest.importorskip("pyarrow").chunked_array([texts[:1], texts[1:]]),
    }
    for make in held.values():
        np.testing.assert_array_equal(encoder.encode(make()), expected)
    streamed = np.concatenate([*encoder.encode_stream(held["Arrow"]())])
    np.testing.assert_array_equal(streamed, expected)


def test_missing_texts_are_refused_with_their_position_or_zero(encoder):
    pandas, polars = map(pytest.importorskip, ("pandas", "polars"))
    arrow = pytest.importorskip("pyarrow")
    texts = ["la", None, "ti"]
    expected = encoder.encode(["la", "", "ti"])
    expected[1] = 0
    columns = [texts, ["la", float("nan"), "ti"], pandas.Series(texts), polars.Series(texts)]
    columns += [pandas.Series(texts, dtype="string"), arrow.array(texts)]
    message = r"^sentences\[1\] must be a string; found .*; drop or fill it$"
    for column in columns:
        with pytest.raises(ValueError, match=message):
            encoder.encode(column)
        np.testing.assert_array_equal(encoder.encode(column, missing="zero"), expected)
    with pytest.raises(ValueError, match=r"sentences\[1\] must be a string; found int 3$"):
        encoder.encode(["la", 3], missing="zero")
    with pytest.raises(ValueError, match="missing='drop' must be one of error, zero"):
        encoder.encode(texts, missing="drop")


def test_sets_and_bytes_are_refused(encoder):
    for wrong, message in (
        ({"la", "ti"}, r"must have an order, and a set has none; use sorted\(sentences\)"),
        (b"la", r"must be a list of strings, .*; got b'la'; decode bytes with .decode\(\)"),
        ([b"la"], r"\[0\] must be a string; found bytes b'la'; decode it with .decode\(\)"),
        (None, "must be a list of strings"),
    ):
        with pytest.raises(ValueError, match=f"^sentences ?{message}"):
            encoder.encode(wrong)


def test_evaluators_and_paraphrase_mining_of_sentence_transformers():
    pytest.importorskip("sentence_transformers")
    from sentence_transformers import util
    from sentence_transformers.sentence_transformer import evaluation

    mini = xling_jax.load("mini")
    english = ["A dog runs.", "Delete the page.", "Good morning to you.", "The train is late."]
    german = ["Ein Hund rennt.", "Lösche die Seite.", "Guten Morgen.", "Der Zug hat Verspätung."]
    others = german[1:] + german[:1]
    numbered = lambda texts: {str(number): text for number, text in enumerate(texts)}
    gold = {number: {number} for number in numbered(english)}
    labeled = english * 2, german + others, [1] * 4 + [0] * 4
    queries, texts = (numbered(english), numbered(german)), numbered(english + german)
    pairs = [[str(number), str(number + 4)] for number in range(4)]
    for evaluator, metric in (
        (evaluation.TranslationEvaluator(english, german), "mean_accuracy"),
        (evaluation.TripletEvaluator(english, german, others), "cosine_accuracy"),
        (evaluation.BinaryClassificationEvaluator(*labeled), "cosine_ap"),
        (evaluation.InformationRetrievalEvaluator(*queries, gold), "cosine_accuracy@1"),
        (evaluation.ParaphraseMiningEvaluator(texts, pairs), "average_precision"),
    ):
        assert evaluator(mini)[metric] == pytest.approx(1)
    cosines = np.diag(mini.similarity(mini.encode(english), mini.encode(german)))
    graded = evaluation.EmbeddingSimilarityEvaluator(english, german, list(cosines))
    assert graded(mini)["spearman_cosine"] == pytest.approx(1)
    mined = util.paraphrase_mining(mini, english + german)
    assert sorted([one, other] for _, one, other in mined[:4]) == [[i, i + 4] for i in range(4)]
    vectors = mini.encode(english, convert_to_tensor=True)
    assert mini.similarity(vectors, vectors).device == mini.device
    assert list(map(type, mini.encode(english, convert_to_numpy=False))) == [type(vectors)] * 4


def test_the_nearest_texts_are_found(sentences):
    german = ["Der Zug hat Verspätung.", "Guten Morgen.", "Ein Hund rennt."]
    hits = xling_jax.search("A dog is running.", iter(german), k=2)
    assert [hit.position for hit in hits][0] == 2 and hits[0].text == german[2] and len(hits) == 2
    mini = xling_jax.load("mini")
    score = mini.similarity(mini.encode("A dog is running."), mini.encode(german[2])).item()
    assert hits[0].score == pytest.approx(score, abs=1e-6)
    several = xling_jax.search(["Good morning.", "A dog is running."], german, mini, k=9)
    assert [row[0].position for row in several] == [1, 2] and len(several[0]) == 3
    with pytest.raises(ValueError, match="texts must hold at least one text; got none"):
        xling_jax.search("a", [])
    with pytest.raises(ValueError, match="model"):
        xling_jax.search("a", ["b"], None)
    scores, rows = xling_jax.top_k(np.eye(3), np.eye(3)[::-1], 1)
    assert rows.ravel().tolist() == [2, 1, 0] and scores.min() == 1
