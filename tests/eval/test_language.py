import json

import numpy as np

from xling_jax.cli.main import main
from xling_jax.documents.debias import gram_matrix, language_components
from xling_jax.eval.language import LanguageIdentification


class Encoder:
    """Vectors of meaning plus a large one of the language."""

    dim = 8

    def encode(self, texts):
        rng = np.random.default_rng(len(texts))
        vectors = rng.normal(size=(len(texts), 8)).astype(np.float32)
        vectors[:, 0 if texts[0].startswith("en") else 1] += 20
        return vectors


def write(path, count=40, site="a"):
    with path.open("w") as file:
        for lang, extra in (("en", 0), ("fr", 3)):  # different numbers give different vectors
            for n in range(count + extra):
                record = {
                    "id": f"{site}{n}",
                    "lang": lang,
                    "domain": site,
                    "sentences": [f"{lang} {n} {k}" for k in "abcd"],
                }
                file.write(json.dumps(record) + "\n")


def test_the_language_is_in_the_components_and_not_in_the_rest(tmp_path):
    write(tmp_path / "a.jsonl")
    write(tmp_path / "b.jsonl", 3, "b")
    task = LanguageIdentification(debias=1, site="a")
    (data,) = task.load([str(tmp_path / "a.jsonl"), str(tmp_path / "b.jsonl")], ["en", "fr"])
    assert {code: len(side) for code, side in data.documents.items()} == {"en": 40, "fr": 43}
    scores = task.measure(Encoder(), data)[data.name]
    assert scores.num_test == {"en": 8 * 4, "fr": 8 * 4}
    assert scores.accuracies["v"] == scores.accuracies["v_lang"] == 1
    assert scores.accuracies["v_sem"] < 0.75
    train, test = scores.parts["v"]
    basis = language_components(gram_matrix(train[0]), 1)  # of the training part alone
    kept = scores.parts["v_sem"][1][0]
    np.testing.assert_allclose(kept, test[0] - test[0] @ basis @ basis.T, atol=1e-4)
    np.testing.assert_allclose(scores.parts["v_lang"][1][0] + kept, test[0], atol=1e-4)


def test_auto_removes_what_xling_align_would(tmp_path):
    write(tmp_path / "a.jsonl")
    task = LanguageIdentification()
    (data,) = task.load([str(tmp_path / "a.jsonl")], None)
    assert task.measure(Encoder(), data)[data.name].rank == 1

    class Neutral:
        def encode(self, texts):
            return np.random.default_rng(len(texts)).normal(size=(len(texts), 8)).astype("f4")

    scores = task.measure(Neutral(), data)[data.name]
    assert scores.rank == 0 and scores.accuracies["v_sem"] == scores.accuracies["v"] < 0.75
    assert scores.accuracies["v_lang"] == 0.5


def test_the_command_prints_the_three_accuracies(tmp_path, capsys):
    write(tmp_path / "a.jsonl")
    words = ["evaluate", "language", "--model", "mini", "--data", str(tmp_path / "a.jsonl")]
    words += ["--debias", "1", "--no-pictures", "--output", str(tmp_path / "o")]
    assert main([*words, "--site", "x"]) == 2
    assert "two documents of the site x" in capsys.readouterr().err
    assert main([*words, "--debias", "256"]) == 2
    assert ": --debias=256: must be at least 0 and below the 256 dim" in capsys.readouterr().err
    assert not (tmp_path / "o").exists()
    assert main(words) == 0
    assert "| documents | components |" in capsys.readouterr().out
