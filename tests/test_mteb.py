"""The encoder under MTEB's own evaluation, on tasks whose data are made here."""

import os
import types

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import jax
import numpy as np
import pytest
from scipy import stats

import xling_jax
from xling_jax.encode.encoder import Encoder
from xling_jax.mteb import MtebEncoder

mteb = pytest.importorskip("mteb", reason="MTEB is not installed")
from datasets import Dataset, DatasetDict  # noqa: E402
from mteb.abstasks.sts import AbsTaskSTS  # noqa: E402
from mteb.abstasks.task_metadata import TaskMetadata  # noqa: E402
from mteb.abstasks.text.bitext_mining import AbsTaskBitextMining  # noqa: E402
from mteb.models.models_protocols import EncoderProtocol  # noqa: E402

NUM_ROWS, DIM = 40, 6
RNG = np.random.default_rng(0)
MEANINGS = RNG.normal(size=(NUM_ROWS, DIM))
VECTORS = {f"en {i}": MEANINGS[i] for i in range(NUM_ROWS)}
VECTORS |= {f"de {i}": MEANINGS[i] + 0.6 * RNG.normal(size=DIM) for i in range(NUM_ROWS)}
ENGLISH, GERMAN = ([f"{code} {i}" for i in range(NUM_ROWS)] for code in ("en", "de"))
GOLD = RNG.uniform(0, 5, NUM_ROWS)


def metadata(kind, name, main_score):
    return TaskMetadata(
        type=kind,
        name=name,
        main_score=main_score,
        description="Made by a test.",
        reference="https://example.org",
        dataset={"path": "none", "revision": "none"},
        category="t2t",
        eval_splits=["test"],
        eval_langs=["eng-Latn"],
        date=("2020-01-01", "2020-01-01"),
        dialect=["Written"],
        domains=[],
        task_subtypes=[],
        license="cc-by-4.0",
        annotations_creators="derived",
        modalities=["text"],
        sample_creation="found",
        bibtex_citation="",
    )


class _LocalData:
    """Puts `columns` where MTEB would put what it downloads."""

    columns = {}

    def load_data(self, num_proc=None, **kwargs):
        splits = {split: Dataset.from_dict(values) for split, values in self.columns.items()}
        self.dataset = DatasetDict(splits)
        self.data_loaded = True


class Bitext(_LocalData, AbsTaskBitextMining):
    metadata = metadata("BitextMining", "LocalBitext", "accuracy")
    columns = {"test": {"sentence1": ENGLISH, "sentence2": GERMAN}}


class Similarity(_LocalData, AbsTaskSTS):
    metadata = metadata("STS", "LocalSTS", "cosine_spearman")
    min_score, max_score = 0, 5
    columns = {"test": {"sentence1": ENGLISH, "sentence2": GERMAN, "score": GOLD}}


@pytest.fixture
def model():
    calls = []

    def encode(texts, *, batch_size=None, show_progress=False):
        calls.append((len(texts), batch_size))
        return np.array([VECTORS[text] for text in texts], np.float32)

    stand_in = types.SimpleNamespace(
        encode=encode,
        params={"table": jax.numpy.zeros((3, 2))},
        max_length_tokens=40,
        dim=DIM,
        fingerprint="abc",
        prompts={},
    )
    model = MtebEncoder(stand_in, name="xling_jax/toy")
    model.calls = calls
    return model


def cosines(first, second):
    first, second = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (first, second))
    return first @ second.T


def german():
    return np.array([VECTORS[text] for text in GERMAN])


def scores(results, name):
    (result,) = [r for r in results if r.task_name == name]
    return result.scores["test"][0]


def test_it_is_an_encoder_to_mteb(model):
    assert isinstance(model, EncoderProtocol)


@pytest.mark.slow
def test_evaluate_gives_the_scores_of_brute_force(model):
    results = mteb.evaluate(
        model, [Bitext(), Similarity()], cache=None, show_progress_bar=False
    ).task_results
    right = (cosines(MEANINGS, german()).argmax(axis=1) == np.arange(NUM_ROWS)).mean()
    assert 0 < right < 1
    assert scores(results, "LocalBitext")["accuracy"] == pytest.approx(right)
    spearman = stats.spearmanr(np.diag(cosines(MEANINGS, german())), GOLD).statistic
    assert scores(results, "LocalSTS")["cosine_spearman"] == pytest.approx(spearman, abs=1e-6)


def test_metadata_tells_the_model(model):
    meta = model.mteb_model_meta
    assert (meta.name, meta.revision) == ("xling_jax/toy", "abc")
    assert (meta.embed_dim, meta.max_tokens, meta.n_parameters) == (DIM, 40, 6)
    assert meta.framework == ["JAX"] and meta.memory_usage_mb == 3 * 2 * 4 / 2**20


def test_batches_without_text_are_refused(model):
    with pytest.raises(ValueError, match=r"takes texts only; a batch holds \['image'\]"):
        model.encode([{"image": [0]}])


def test_a_model_is_named_by_its_workdir(tmp_path, monkeypatch, model):
    (tmp_path / "run_7" / "encoder").mkdir(parents=True)
    (tmp_path / "run_7" / "encoder" / "encoder.safetensors").touch()
    dtypes = []
    from_directory = lambda path, dtype=None: dtypes.append(dtype) or model.encoder
    monkeypatch.setattr(Encoder, "from_directory", from_directory)
    meta = MtebEncoder(str(tmp_path / "run_7"), None, device="cpu").mteb_model_meta
    assert (meta.name, meta.revision) == ("xling_jax/run_7", "abc")
    given = MtebEncoder(tmp_path / "run_7", "v2", dtype="bfloat16", batch_size=7, name="lab/mine")
    assert (given.mteb_model_meta.name, given.mteb_model_meta.revision) == ("lab/mine", "v2")
    given.encode([{"text": ENGLISH[:2]}, {"text": GERMAN[:1]}])
    assert model.calls == [(3, 7)] and dtypes == [None, "bfloat16"]


def test_prompts_and_width_of_the_model_count(tmp_path):
    mini = xling_jax.load("mini")
    mini.prompts = {"STS": "good morning ", "query": "where is ", "passage": "here is "}
    mini.save(tmp_path / "m")
    native = MtebEncoder(tmp_path / "m", truncate_dim=64)
    assert native.mteb_model_meta.embed_dim == 64
    texts = ["the house", "das Haus"]

    def found(task, kind=None):
        return native.encode([{"text": texts}], task_metadata=task.metadata, prompt_type=kind)

    def expected(prompt):
        return mini.encode([prompt + text for text in texts], truncate_dim=64)

    kinds = mteb.types.PromptType
    for task, kind, prompt in [
        (Similarity, None, "good morning "),  # that of the task comes before that of the kind
        (Similarity, kinds.query, "good morning "),
        (Bitext, kinds.query, "where is "),
        (Bitext, kinds.document, "here is "),
        (Bitext, None, ""),
    ]:
        np.testing.assert_array_equal(found(task, kind), expected(prompt))
    run = {"cache": None, "show_progress_bar": False}
    results = mteb.evaluate(native, [Similarity()], **run).task_results
    vectors = [mini.encode(side, prompt_name="STS", truncate_dim=64) for side in (ENGLISH, GERMAN)]
    cosines = mini.similarity_pairwise(*vectors)
    spearman = stats.spearmanr(cosines, GOLD).statistic
    assert scores(results, "LocalSTS")["cosine_spearman"] == pytest.approx(spearman, abs=1e-4)
