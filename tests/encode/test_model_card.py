"""Model cards as the Hugging Face hub reads them."""

import types

import pytest

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
    results = {"tatoeba_deu_eng/accuracy": 0.975, "dev/loss": float("nan")}
    save_model(tmp_path / "m", **model_arguments | changed, results=results)
    data = hub.metadata_load(tmp_path / "m" / "README.md")
    assert data["language"] == ["de", "no", "ceb"]
    assert (data["library_name"], data["pipeline_tag"]) == ("xling_jax", "sentence-similarity")
    card = hub.ModelCard.load(tmp_path / "m" / "README.md")
    assert "| tatoeba_deu_eng/accuracy | 0.975 |" in card.text
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
