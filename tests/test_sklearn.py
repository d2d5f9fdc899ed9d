"""The transformer in the hands of scikit-learn itself."""

import io

import jax
import joblib
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.utils import estimator_checks

import xling_jax
from tests.encode.random_models import save_random
from xling_jax.sklearn import SentenceEmbedder
from xling_jax.text.vocab import train_vocab

SUNNY, RAINY = "sun shines on the warm sand", "rain falls on the cold street"
TEXTS = [f"{weather} {i % 5}" for i in range(10) for weather in (SUNNY, RAINY)]
LABELS = ["sunny", "rainy"] * 10

# The checks of scikit-learn that do not feed numbers. The others fit arrays of numbers, which an
# embedder of texts must refuse: scikit-learn leaves them out itself for estimators whose tags say
# that they take strings. `check_parameters_default_constructible` is not among them because a
# model has no default.
CHECKS = [
    estimator_checks.check_estimator_cloneable,
    estimator_checks.check_estimator_repr,
    estimator_checks.check_estimator_tags_renamed,
    estimator_checks.check_get_params_invariance,
    estimator_checks.check_mixin_order,
    estimator_checks.check_no_attributes_set_in_init,
    estimator_checks.check_set_params,
    estimator_checks.check_valid_tag_types,
]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A model directory with an encoder that has learnt nothing."""
    directory = tmp_path_factory.mktemp("model")
    vocab = train_vocab(iter(TEXTS * 4), size=40)
    sizes = {"width": 16, "layers": 1, "heads": 2, "ffn_width": 16}
    return str(save_random(directory / "encoder", "tlaser", vocab, sizes, languages=("en",)))


def leaves(params):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(params)]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_checks_of_scikit_learn(check, model):
    check("SentenceEmbedder", SentenceEmbedder(model))


def test_scikit_learn_has_no_further_checks_for_texts():
    with pytest.warns(match="requires input"):
        checks = list(estimator_checks._yield_all_checks(SentenceEmbedder("m"), legacy=True))
    assert not checks


def test_transform_is_the_encoder(model):
    encoder = xling_jax.load(model)
    np.testing.assert_array_equal(SentenceEmbedder(model).transform(TEXTS), encoder.encode(TEXTS))
    narrow = SentenceEmbedder(model, truncate_dim=5, normalize=True)
    expected = encoder.encode(TEXTS, truncate_dim=5, normalize=True)
    np.testing.assert_array_equal(narrow.fit(TEXTS).transform(TEXTS), expected)
    assert len(narrow.get_feature_names_out()) == 5
    half = SentenceEmbedder(model, dtype="bfloat16").transform(TEXTS)
    assert half.dtype == np.float32 and not np.array_equal(half, encoder.encode(TEXTS))
    documents = ["One sentence. Another one.", "Rain."]
    np.testing.assert_array_equal(
        SentenceEmbedder(encoder, documents=True, normalize=True).fit_transform(documents),
        encoder.encode_documents(documents, normalize=True),
    )
    array = np.array(TEXTS, dtype=object)
    np.testing.assert_array_equal(SentenceEmbedder(model).transform(array), encoder.encode(TEXTS))


def test_a_model_that_is_trained_again_is_read_again(model, tmp_path):
    encoder, embedder = xling_jax.load(model), SentenceEmbedder(tmp_path / "m")
    encoder.save(tmp_path / "m")
    np.testing.assert_array_equal(embedder.transform(TEXTS), encoder.encode(TEXTS))
    encoder.truncated(5).save(tmp_path / "m", overwrite=True)
    assert embedder.transform(TEXTS).shape == (len(TEXTS), 5)


def test_pipeline_classifies_and_grid_search_chooses(model):
    pipeline = make_pipeline(SentenceEmbedder(model), LogisticRegression(max_iter=500))
    grid = {"sentenceembedder__normalize": [True, False], "logisticregression__C": [1e-6, 100.0]}
    search = GridSearchCV(pipeline, grid, cv=2, scoring="neg_log_loss", error_score="raise")
    search.fit(TEXTS, LABELS)
    assert search.best_params_["logisticregression__C"] == 100
    assert list(search.predict(TEXTS)) == LABELS


def test_clones_share_the_weights_of_an_encoder(model):
    encoder = xling_jax.load(model)
    assert clone(make_pipeline(SentenceEmbedder(encoder)))[0].model is encoder


def test_pickle_holds_the_path_and_not_the_weights(model):
    pipeline = make_pipeline(SentenceEmbedder(model), LogisticRegression(C=100))
    pipeline.fit(TEXTS, LABELS)
    file = io.BytesIO()
    joblib.dump(pipeline, file)
    weights = leaves(xling_jax.load(model).params)
    assert model.encode() in file.getvalue()
    assert len(file.getvalue()) < 4000 < sum(leaf.nbytes for leaf in weights)
    file.seek(0)
    assert list(joblib.load(file).predict(TEXTS)) == LABELS


def test_column_of_a_data_frame_and_feature_names(model):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"text": TEXTS, "n": range(len(TEXTS))})
    columns = make_column_transformer((SentenceEmbedder(model), "text"))
    assert columns.fit_transform(frame).shape == (len(TEXTS), 16)
    embedder = SentenceEmbedder(model).set_output(transform="pandas")
    assert list(embedder.fit_transform(frame["text"]).columns)[:2] == [
        "sentenceembedder0",
        "sentenceembedder1",
    ]


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ("one text", "must be a list of strings"),
        (["a", None], r"X\[1\] must be a string; found NoneType None"),
        (np.array([["a"], ["b"]]), r"got shape \(2, 1\)"),
    ],
)
def test_other_input_is_refused(model, texts, message):
    for method in ("fit", "transform"):
        with pytest.raises(ValueError, match=message):
            getattr(SentenceEmbedder(model), method)(texts)
