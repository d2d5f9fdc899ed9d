"""The encoder under MTEB's own evaluation, on tasks whose data are made here."""

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np
import pytest
from scipy import stats

import xling_jax
from xling_jax.mteb import MtebEncoder

mteb = pytest.importorskip("mteb", reason="MTEB is not installed")
from datasets import Dataset, DatasetDict  # noqa: E402
from mteb.abstasks.sts import AbsTaskSTS  # noqa: E402
from mteb.abstasks.task_metadata import TaskMetadata  # noqa: E402
from mteb.abstasks.text.bitext_mining import AbsTaskBitextMining  # noqa: E402
from mteb.models.models_protocols import EncoderProtocol  # noqa: E402

ENGLISH = ["the house", "a red tree", "the river", "no answer", "good morning", "two small dogs"]
GERMAN = ["das Haus", "ein roter Baum", "der Fluss", "keine Antwort", "guten Morgen", "zwei Hunde"]
GOLD = [5.0, 3.0, 4.0, 1.0, 2.0, 0.0]
RUN = {"cache": None, "show_progress_bar": False}


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

    columns = {"sentence1": ENGLISH, "sentence2": GERMAN}

    def load_data(self, num_proc=None, **kwargs):
        self.dataset = DatasetDict({"test": Dataset.from_dict(self.columns)})
        self.data_loaded = True


class Bitext(_LocalData, AbsTaskBitextMining):
    metadata = metadata("BitextMining", "LocalBitext", "accuracy")


class Similarity(_LocalData, AbsTaskSTS):
    metadata = metadata("STS", "LocalSTS", "cosine_spearman")
    min_score, max_score = 0, 5
    columns = _LocalData.columns | {"score": GOLD}


@pytest.fixture(scope="module")
def mini():
    return xling_jax.load("mini")


def spearman(encoder, **options):
    vectors = [encoder.encode(side, **options) for side in (ENGLISH, GERMAN)]
    return stats.spearmanr(encoder.similarity_pairwise(*vectors), GOLD).statistic


@pytest.mark.slow
def test_evaluate_gives_the_scores_of_brute_force(mini):
    model = MtebEncoder(mini)
    assert isinstance(model, EncoderProtocol)
    results = mteb.evaluate(model, [Bitext(), Similarity()], **RUN).task_results
    scores = {result.task_name: result.scores["test"][0] for result in results}
    best = np.argmax(mini.similarity(mini.encode(ENGLISH), mini.encode(GERMAN)), axis=1)
    right = (best == np.arange(len(ENGLISH))).mean()
    assert scores["LocalBitext"]["accuracy"] == pytest.approx(right)
    assert scores["LocalSTS"]["cosine_spearman"] == pytest.approx(spearman(mini), abs=1e-4)


def test_batches_without_text_are_refused(mini):
    with pytest.raises(ValueError, match=r"takes texts only; a batch holds \['image'\]"):
        MtebEncoder(mini).encode([{"image": [0]}])


def test_a_model_is_named_by_its_workdir_and_tells_what_it_is(tmp_path, mini):
    mini.save(tmp_path / "run_7/encoder")
    meta = MtebEncoder(str(tmp_path / "run_7")).mteb_model_meta
    assert (meta.name, meta.revision) == ("xling_jax/run_7", mini.fingerprint)
    assert (meta.embed_dim, meta.max_tokens) == (mini.dim, mini.max_length_tokens)
    assert meta.framework == ["JAX"] and meta.n_parameters > 10**6
    given = MtebEncoder(mini, "v2", name="lab/mine").mteb_model_meta
    assert (given.name, given.revision) == ("lab/mine", "v2")


def test_prompts_width_and_batch_size_count(monkeypatch):
    mini = xling_jax.load("mini")
    mini.prompts = {"STS": "good morning ", "query": "where is ", "passage": "here is "}
    native = MtebEncoder(mini.truncated(64))
    assert native.mteb_model_meta.embed_dim == 64
    kinds = mteb.types.PromptType
    for task, kind, prompt in [
        (Similarity, None, "good morning "),  # that of the task comes before that of the kind
        (Similarity, kinds.query, "good morning "),
        (Bitext, kinds.query, "where is "),
        (Bitext, kinds.document, "here is "),
        (Bitext, None, ""),
    ]:
        batches = [{"text": ENGLISH[:1]}, {"text": ENGLISH[1:2]}]
        found = native.encode(batches, task_metadata=task.metadata, prompt_type=kind)
        expected = mini.encode([prompt + text for text in ENGLISH[:2]], truncate_dim=64)
        np.testing.assert_array_equal(found, expected)
    sizes = []
    encode = lambda self, texts, **options: sizes.append((len(texts), options["batch_size"]))
    monkeypatch.setattr(type(mini), "encode", encode)
    MtebEncoder(mini, batch_size=7).encode([{"text": ENGLISH[:2]}, {"text": GERMAN[:1]}])
    assert sizes == [(3, 7)]
