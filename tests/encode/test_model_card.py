"""Model cards as the Hugging Face hub reads them, and uploads to a stand-in for it."""

import json
import shutil
import sys
import types

import numpy as np
import pytest

import xling_jax
from xling_jax.encode.model_card import scores_section, with_scores_section
from xling_jax.encode.model_directory import SHIPPED, save_model

hub = pytest.importorskip("huggingface_hub")


def test_the_header_of_a_card_is_valid(tmp_path, model_arguments):
    training = {
        "steps": 3,
        "pairs": ["de-en", "en-no"],
        "objective": {"translation": {"label_smoothing": 0.1}, "distance": {"weight": 0.25}},
    }
    changed = {"languages": ("de", "no", "zh-yue", "ceb"), "training": training}
    results = {"tatoeba_deu_eng/accuracy": 0.975, "note": 1.0, "dev/loss": float("nan")}
    results["bucc/de-en/f1"] = 0.5
    save_model(tmp_path / "m", **model_arguments | changed, results=results)
    data = hub.metadata_load(tmp_path / "m" / "README.md")
    assert data["language"] == ["de", "no", "ceb"]
    assert (data["library_name"], data["pipeline_tag"]) == ("xling_jax", "sentence-similarity")
    assert data["metrics"] == ["accuracy", "f1"]
    card = hub.ModelCard.load(tmp_path / "m" / "README.md")
    found = {(r.dataset_name, r.metric_type, r.metric_value) for r in card.data.eval_results}
    assert found == {("tatoeba_deu_eng", "accuracy", 0.975), ("bucc/de-en", "f1", 0.5)}
    assert "| objective | translation (weight 1), distance (weight 0.25) |" in card.text
    assert "| pairs | de-en, en-no |" in card.text
    assert "label_smoothing" not in card.text


def test_a_card_gets_a_section_on_scores_in_place_of_an_earlier_one():
    row = {"score": 1.05, "precision": 0.95, "recall": 0.5, "precision_at_tenth": 0.8}
    calibration = types.SimpleNamespace(
        data=[{"name": "dev", "num_rows": 1200}],
        languages=("de", "en"),
        k=4,
        thresholds={"ratio": [types.SimpleNamespace(**row)]},
    )
    section = scores_section(calibration)
    assert "Measured on dev (1,200 rows), languages de, en:" in section
    assert "| 1.05 | 95.0% | 50.0% | 80.0% |" in section
    card = "# m\n\n## What scores mean\n\nold\n\n## Elsewhere\n\nkept\n"
    expected = f"# m\n\n## Elsewhere\n\nkept\n\n{section}\n"
    assert with_scores_section(card, calibration) == expected
    assert with_scores_section(expected, calibration) == expected


def test_the_card_of_the_shipped_encoder_is_valid():
    card = hub.ModelCard.load(SHIPPED["mini"] / "README.md")
    assert card.data.license == "apache-2.0"
    assert card.data.language == ["en", "de", "fr", "es", "it"]
    values = {(r.dataset_name, r.metric_type): r.metric_value for r in card.data.eval_results}
    assert ("Tatoeba, to English", "error") in values
    for value in values.values():
        assert str(value) in card.text


@pytest.fixture
def stand_in(tmp_path, monkeypatch):
    """Replaces the hub's client: repositories are folders under `hub`."""

    class Api:
        def __init__(self, token=None):
            self.token = token

        def create_repo(self, repo_id, *, private=None, exist_ok=False):
            assert exist_ok and self.token == "secret"
            (tmp_path / "hub" / repo_id).mkdir(parents=True)
            (tmp_path / "hub" / repo_id / "private.json").write_text(json.dumps(private))

        def upload_folder(self, *, repo_id, folder_path, commit_message, revision):
            target = tmp_path / "hub" / repo_id
            shutil.copytree(folder_path, target, dirs_exist_ok=True)
            (target / "commit.json").write_text(json.dumps([commit_message, revision]))
            url = f"https://huggingface.co/{repo_id}/commit/1"
            return hub.CommitInfo(
                commit_url=url, commit_message=commit_message, commit_description="", oid="1"
            )

    monkeypatch.setattr(hub, "HfApi", Api)
    return tmp_path / "hub"


def test_what_is_pushed_is_loaded_again(stand_in, model_directory, sentences):
    encoder = xling_jax.load(model_directory)
    commit = {"revision": "dev", "commit_message": "First"}
    url = encoder.push_to_hub("lab/encoder", private=True, token="secret", **commit)
    assert url == "https://huggingface.co/lab/encoder/commit/1"
    repository = stand_in / "lab" / "encoder"
    assert (repository / "private.json").read_text() == "true"
    assert json.loads((repository / "commit.json").read_text()) == ["First", "dev"]
    again = xling_jax.load(repository)
    assert again.fingerprint == encoder.fingerprint
    np.testing.assert_array_equal(again.encode(sentences[:9]), encoder.encode(sentences[:9]))
    assert hub.metadata_load(repository / "README.md")["language"] == ["de", "en"]


def test_the_missing_package_is_named(model_directory, monkeypatch):
    encoder = xling_jax.load(model_directory)
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ImportError, match=r"pip install 'xling_jax\[hub\]'"):
        encoder.push_to_hub("lab/encoder")
