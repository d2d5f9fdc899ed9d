"""Ready vectors are measured as an encoder's are; files that do not fit are errors of one line."""

import gzip
import json

import numpy as np
import pytest

from xling_jax.cli import main
from xling_jax.eval import retrieval_data
from xling_jax.eval.classification import Classification
from xling_jax.eval.classification_data import load_classification_data
from xling_jax.eval.retrieval import Retrieval
from xling_jax.eval.stored_embeddings import StoredEmbeddings
from xling_jax.files.embeddings import write_embeddings
from xling_jax.files.quantization import Quantizer

RNG = np.random.default_rng(0)
NUM_ROWS, DIM = 12, 5
ENGLISH = RNG.normal(size=(NUM_ROWS, DIM)).astype(np.float32)
GERMAN = ENGLISH + 0.5 * RNG.normal(size=(NUM_ROWS, DIM)).astype(np.float32)


@pytest.fixture
def data(tmp_path):
    path = tmp_path / "toy.dev.tsv.gz"
    rows = "".join(f"{i}\tsentence {i}\tSatz {i}\n" for i in range(NUM_ROWS))
    path.write_bytes(gzip.compress(("id\ten\tde\n" + rows).encode()))
    return path


@pytest.fixture
def vectors(tmp_path):
    directory = tmp_path / "vectors"
    directory.mkdir()
    np.save(directory / "toy.dev.en.npy", ENGLISH)
    np.save(directory / "toy.dev.de.npy", GERMAN)
    return directory


def evaluate(data, vectors, output, *options):
    words = ["evaluate", "retrieval", "--embeddings", vectors, "--data", data, "--output", output]
    return main.main([*map(str, words), "--no-pictures", *options])


def error(capsys):
    lines = [line for line in capsys.readouterr().err.splitlines() if "error:" in line]
    assert len(lines) == 1
    return lines[0]


def nearest_is_own(source, target):
    source, target = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (source, target))
    return np.mean((source @ target.T).argmax(axis=1) == np.arange(len(source)))


def test_stored_vectors_give_the_scores_of_brute_force(data, vectors, tmp_path):
    assert evaluate(data, vectors, tmp_path / "out") == 0
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    expected = nearest_is_own(ENGLISH, GERMAN), nearest_is_own(GERMAN, ENGLISH)
    assert results["metrics"]["toy_dev/p_at_1"] == pytest.approx(np.mean(expected))
    assert 0 < np.mean(expected) < 1
    assert results["model"]["path"] == str(vectors)
    assert len(results["model"]["fingerprint"]) == 64


def test_packed_bits_are_scored_by_the_bits_that_agree(data, vectors, tmp_path):
    english = RNG.normal(size=(NUM_ROWS, 64))
    german = english + 2.5 * RNG.normal(size=english.shape)
    for code, side in (("en", english), ("de", german)):
        file = {"dim": 64, "overwrite": True, "quantizer": Quantizer("ubinary", 64)}
        write_embeddings(vectors / f"toy.dev.{code}.npy", [side], **file)
    assert evaluate(data, vectors, tmp_path / "out") == 0
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    signs = [np.where(side > 0, 1, -1) for side in (english, german)]
    expected = nearest_is_own(*signs), nearest_is_own(*signs[::-1])
    assert results["metrics"]["toy_dev/p_at_1"] == pytest.approx(np.mean(expected))
    assert 0.1 < np.mean(expected) < 1


def test_headerless_files_are_read(data, vectors, tmp_path, capsys):
    GERMAN.tofile(vectors / "toy.dev.de.bin")
    (vectors / "toy.dev.de.npy").unlink()
    assert evaluate(data, vectors, tmp_path / "out", "--dim", str(DIM)) == 0
    GERMAN.ravel()[:-1].tofile(vectors / "toy.dev.de.bin")
    assert evaluate(data, vectors, tmp_path / "out2", "--dim", str(DIM)) == 1
    assert "not a whole number of rows of 5 float32" in error(capsys)


def test_row_i_is_line_i_whatever_the_order_asked(data, vectors):
    sets = [retrieval_data.load_retrieval_data(data)]
    stored = StoredEmbeddings(vectors, Retrieval().vector_files(sets))
    texts = ["Satz 3", "sentence 7", "Satz 0"]
    np.testing.assert_array_equal(stored.encode(texts), [GERMAN[3], ENGLISH[7], GERMAN[0]])
    matrix = Retrieval().measure(stored, sets[0])["toy_dev"]
    assert matrix.cells["en", "de"]["p_at_1"] == nearest_is_own(ENGLISH, GERMAN)
    with pytest.raises(ValueError, match="no stored vector for the text 'other'"):
        stored.encode(["other"])


def test_the_fingerprint_tells_vectors_apart(vectors):
    columns = {"toy.dev.en": [f"sentence {i}" for i in range(NUM_ROWS)]}
    first = StoredEmbeddings(vectors, columns).fingerprint
    assert StoredEmbeddings(vectors, columns).fingerprint == first
    np.save(vectors / "toy.dev.en.npy", ENGLISH + 1e-6)
    assert StoredEmbeddings(vectors, columns).fingerprint != first


def test_distractors_are_rows_of_their_file_blank_lines_included(data, vectors, tmp_path):
    more = tmp_path / "news.de.txt"
    more.write_text("eins\n \nzwei \n")
    eins, zwei = -ENGLISH[0], ENGLISH[0]
    np.save(vectors / "news.de.npy", np.stack([eins, np.full(DIM, 9, np.float32), zwei]))
    assert evaluate(data, vectors, tmp_path / "out", "--distractors", str(more)) == 0
    matrix = json.loads((tmp_path / "out" / "results.json").read_text())["matrices"]["toy_dev"]
    assert matrix["num_candidates"]["en"]["de"] == NUM_ROWS + 2
    expected = nearest_is_own(ENGLISH, np.stack([*GERMAN, eins, zwei]))
    assert matrix["p_at_1"]["en"]["de"] == pytest.approx(expected)
    assert expected < nearest_is_own(ENGLISH, GERMAN)


def test_columns_of_classification_are_named_by_split_and_language(tmp_path):
    for name, rows in (("train.en", 3), ("test.de", 2)):
        lines = [f"{i % 2}\t{name} {i}" for i in range(rows)]
        (tmp_path / f"{name}.tsv").write_text("\n".join(["label\ttext", *lines]) + "\n")
    columns = Classification().vector_files([load_classification_data(tmp_path)])
    assert columns == {
        "train.en": ["train.en 0", "train.en 1", "train.en 2"],
        "test.de": ["test.de 0", "test.de 1"],
    }
    (tmp_path / "tatoeba").mkdir()  # whose files have vectors under their own names
    for code in ("deu", "eng"):
        (tmp_path / "tatoeba" / f"tatoeba.deu-eng.{code}").write_text(f"{code} 1\n{code} 2\n")
    sets = [retrieval_data.load_retrieval_data(tmp_path / "tatoeba")]
    assert set(Retrieval().vector_files(sets)) == {"tatoeba.deu-eng.deu", "tatoeba.deu-eng.eng"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: np.save(d / "toy.dev.de.npy", GERMAN[1:]), "for each of the 12 lines"),
        (lambda d: np.save(d / "toy.dev.de.npy", GERMAN[:, 1:]), "must have 5 dimensions; found 4"),
        (lambda d: np.save(d / "toy.dev.de.npy", GERMAN * np.nan), "npy[0] must be finite"),
        (lambda d: np.save(d / "toy.dev.de.npy", np.arange(12)), "floats [n, dim]"),
        (lambda d: (d / "toy.dev.de.npy").unlink(), "must hold the vectors of toy.dev.de as"),
        (lambda d: GERMAN.tofile(d / "toy.dev.de.bin"), "found both"),
    ],
)
def test_files_that_do_not_fit_are_one_line(data, vectors, tmp_path, capsys, change, message):
    change(vectors)
    assert evaluate(data, vectors, tmp_path / "out") == 1
    assert message in error(capsys)
    assert not (tmp_path / "out").exists()


def test_wrong_use_has_status_2(data, vectors, tmp_path, capsys):
    assert evaluate(data, tmp_path / "nowhere", tmp_path / "out") == 2
    assert "--embeddings" in error(capsys)
    assert evaluate(data, data, tmp_path / "out") == 2
    assert "must be a directory" in error(capsys)
    assert evaluate(data, vectors, tmp_path / "out", "--dim", "0") == 2
    assert "--dim 0" in error(capsys)
    with pytest.raises(SystemExit) as exit_info:
        evaluate(data, vectors, tmp_path / "out", "--model", "m")
    assert exit_info.value.code == 2
