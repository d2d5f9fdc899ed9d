"""`xling align` and `xling evaluate alignment` from their arguments to their files."""

import gzip
import io
import json
import random
from pathlib import Path

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import xling_jax
from xling_jax.align import matching
from xling_jax.align.matching import align_documents
from xling_jax.align.urls import match_urls
from xling_jax.cli import align_arguments
from xling_jax.cli.main import main
from xling_jax.data.vocab import train_vocab
from xling_jax.documents import lawdr as lawdr_lib
from xling_jax.documents.debias import choose_rank
from xling_jax.documents.lawdr import Lawdr
from xling_jax.encode.encoder import Encoder
from xling_jax.eval.document_alignment import CELLS

DIM = 16
NUM_DOCUMENTS = 30
FUNCTION_WORDS = {"en": ["the", "of", "and"], "de": ["der", "von", "und"]}
RANK = ("--debias", "2")


class MeanOfTokens(nn.Module):
    """The mean of token vectors, pads left out."""

    vocab_size: int

    @nn.compact
    def __call__(self, tokens, deterministic=True):
        table = self.param("table", nn.initializers.normal(1.0), (self.vocab_size, DIM))
        mask = (tokens != 1)[..., None]
        return jnp.sum(table[tokens] * mask, axis=1) / jnp.maximum(mask.sum(axis=1), 1)


def make_documents():
    """Records of equal content words under the function words of two languages."""
    generator = random.Random(0)
    words = ["".join(generator.choices("bdklmnrst", k=2)) + "a" * i for i in range(1, 6)] * 8
    words = [word + generator.choice("iou") + generator.choice("klmn") for word in words]
    rows = []
    for index in range(NUM_DOCUMENTS):
        sentences = [generator.choices(words, k=5) for _ in range(generator.randint(1, 6))]
        for code, functions in FUNCTION_WORDS.items():
            texts = [" ".join([*s, *generator.choices(functions, k=3)]) for s in sentences]
            site = f"s{index % 3}.org"
            url = f"http://{site}/{code}/{index}" if index in (4, 8) else None
            row = {"id": f"{code}{index}", "lang": code, "sentences": texts, "site": site}
            rows.append(row | ({"url": url} if url else {}))
    return rows


ROWS = make_documents()


def side(code, rows=ROWS):
    return [row for row in rows if row["lang"] == code]


def lines(rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("vocab") / "sentencepiece.model"
    vocab = train_vocab((text for row in ROWS for text in row["sentences"]), path, size=120)
    module = MeanOfTokens(vocab.size)
    return Encoder(
        module,
        module.init(jax.random.key(0), np.ones((1, 8), np.int32))["params"],
        vocab,
        specials=((), ("eos",)),
        max_length_tokens=60,
        languages=("en", "de"),
        fingerprint="abc",
        dim=DIM,
    )


@pytest.fixture
def encoder(model, monkeypatch):
    monkeypatch.setattr(xling_jax, "load", lambda path: model)
    return model


@pytest.fixture
def files(tmp_path):
    """Documents of two languages, and the pairs of equal content."""
    for code in FUNCTION_WORDS:
        (tmp_path / f"{code}.jsonl").write_text(lines(side(code)))
    (tmp_path / "all.jsonl.gz").write_bytes(gzip.compress(lines(ROWS).encode()))
    gold = "".join(f"en{index}\tde{index}\n" for index in range(NUM_DOCUMENTS))
    (tmp_path / "gold.tsv").write_text(gold)
    return tmp_path


@pytest.fixture
def ready(files, encoder):
    """Arguments of ready sentence vectors."""
    for code in FUNCTION_WORDS:
        np.save(files / f"{code}.npy", sentence_vectors(encoder, code)[0])
    return ("--source-embeddings", files / "en.npy", "--target-embeddings", files / "de.npy")


def run(directory, *options, model="m", source="en.jsonl", target="de.jsonl", output="out.tsv"):
    argv = ["align", "--source", str(directory / source), "--target", str(directory / target)]
    argv += ["--output", str(directory / output)] + (["--model", model] if model else [])
    return main([*argv, *map(str, options)])


@pytest.fixture
def fails(capsys):
    """Checks status and that the error is one line; returns the line."""

    def fails(status, expected):
        assert status == expected
        error = capsys.readouterr().err
        (line,) = [line for line in error.splitlines() if line.startswith("xling ")]
        return line

    return fails


def sentence_vectors(encoder, code, rows=ROWS):
    chosen = [[text for text in row["sentences"] if text.strip()] for row in side(code, rows)]
    offsets = np.cumsum([0, *map(len, chosen)])
    return encoder.encode([text for texts in chosen for text in texts]), offsets


def expected_pairs(encoder, rank=2, weighting="kde", density_on="raw", rows=ROWS, **settings):
    """The pairs through the functions of the library, (score, source id, target id)."""
    documents = []
    for code in FUNCTION_WORDS:
        vectors, offsets = sentence_vectors(encoder, code, rows)
        lawdr = Lawdr(rank=rank, weighting=weighting, density_on=density_on).fit(vectors)
        documents.append(lawdr.transform(vectors, offsets))
    ids = [[row["id"] for row in side(code, rows)] for code in FUNCTION_WORDS]
    pairs = align_documents(*documents, **settings)
    return [(score, ids[0][i], ids[1][j]) for score, i, j in pairs]


def read(path):
    rows = [line.split("\t") for line in path.read_text(encoding="utf-8").splitlines()]
    return [(float(score), source, target) for score, source, target in rows]


def check_same(found, expected):
    assert {pair[1:] for pair in found} == {pair[1:] for pair in expected}
    np.testing.assert_allclose([pair[0] for pair in found], [p[0] for p in expected], atol=2e-5)


def right(pairs):
    return sum(source[2:] == target[2:] for _, source, target in pairs)


def test_choices_are_those_of_the_library():
    choices = align_arguments._CHOICES
    assert {*choices["weighting"]} == {*lawdr_lib.WEIGHTINGS}
    assert {*choices["density_on"]} == {*lawdr_lib.DENSITY_INPUTS}
    assert {*choices["similarity"]} == {*matching.SIMILARITIES}


@pytest.mark.parametrize(
    ("options", "settings"),
    [
        ((*RANK,), {}),
        (("--debias", "0"), {"rank": None}),
        ((*RANK, "--weighting", "none"), {"weighting": "none"}),
        ((*RANK, "--similarity", "cosine"), {"similarity": "cosine"}),
        ((*RANK, "--k", "2", "--candidates", "3"), {"k": 2, "candidates": 3}),
        ((*RANK, "--raw-products"), {"normalize": False}),
        ((*RANK, "--density-on", "debiased"), {"density_on": "debiased"}),
    ],
)
def test_pairs_are_those_of_the_library(files, encoder, options, settings):
    assert run(files, *options) == 0
    found = read(files / "out.tsv")
    check_same(found, expected_pairs(encoder, **settings))
    assert [pair[0] for pair in found] == sorted((pair[0] for pair in found), reverse=True)


def test_the_rank_is_found_by_default(files, encoder, caplog):
    with caplog.at_level("INFO"):
        assert run(files) == 0
    named = {code: sentence_vectors(encoder, code)[0] for code in FUNCTION_WORDS}
    rank = choose_rank(named).rank
    assert f"debiasing: {rank} components of each language" in caplog.text
    check_same(read(files / "out.tsv"), expected_pairs(encoder, rank=rank))


def test_most_documents_find_their_translation_and_the_log_tells(files, encoder, caplog):
    with caplog.at_level("INFO"):
        assert run(files, *RANK, "--gold", files / "gold.tsv") == 0
    found = read(files / "out.tsv")
    assert right(found) > 0.8 * NUM_DOCUMENTS
    share = 100 * right(found) / NUM_DOCUMENTS
    assert f"recall {share:.2f} % of {NUM_DOCUMENTS} gold pairs" in caplog.text
    assert "en.jsonl: 30 documents in en" in caplog.text


CONFIG = """
from ml_collections import ConfigDict

def get_config(arg=""):
    return ConfigDict({"debias": 2, "weighting": "none", "k": 3, "domain": "site", "encoder": "x"})
"""


def test_a_config_gives_what_the_command_line_does_not(files, encoder, fails):
    (files / "lawdr.py").write_text(CONFIG)
    config = ("--config", files / "lawdr.py")
    sites = [[row["site"] for row in side(code)] for code in FUNCTION_WORDS]
    assert run(files, *config, "--weighting", "kde") == 0
    check_same(read(files / "out.tsv"), expected_pairs(encoder, k=3, domains=sites))
    assert run(files, *config, "--config.debias=3", "--domain", "", "--overwrite") == 0
    expected = expected_pairs(encoder, rank=3, weighting="none", k=3)
    check_same(read(files / "out.tsv"), expected)
    broken = ("--config.weighting=all", "--overwrite")
    assert "weighting must be one of kde, none; got 'all'" in fails(run(files, *config, *broken), 2)
    assert "goes with --config FILE" in fails(run(files, "--config.debias=3"), 2)


@pytest.mark.parametrize("name", ["lawdr_wmt16", "lawdr_wmt19"])
def test_published_configs_are_taken(files, encoder, name):
    config = Path(__file__).parents[2] / "configs" / f"{name}.py:encoder=xlm"
    options = ("--config", config, "--config.debias=2", "--domain", "site")
    assert run(files, *options) == 0
    sites = [[row["site"] for row in side(code)] for code in FUNCTION_WORDS]
    check_same(read(files / "out.tsv"), expected_pairs(encoder, domains=sites))


def test_ready_vectors_in_place_of_a_model(files, encoder, ready, monkeypatch):
    monkeypatch.setattr(xling_jax, "load", lambda path: pytest.fail("loaded"))
    assert run(files, *RANK, *ready, model=None) == 0
    check_same(read(files / "out.tsv"), expected_pairs(encoder))


def test_one_file_of_two_languages_and_stdin(files, encoder, monkeypatch):
    languages = ("--languages", "en,de")
    assert run(files, *RANK, *languages, source="all.jsonl.gz", target="all.jsonl.gz") == 0
    check_same(read(files / "out.tsv"), expected_pairs(encoder))
    stdin = io.TextIOWrapper(io.BytesIO((files / "en.jsonl").read_bytes()))
    monkeypatch.setattr("sys.stdin", stdin)
    argv = ["align", "--model", "m", "--source", "-", "--target", str(files / "de.jsonl"), *RANK]
    assert main([*argv, "--output", str(files / "piped.tsv")]) == 0
    assert (files / "piped.tsv").read_text() == (files / "out.tsv").read_text()


def test_stdout(files, encoder, monkeypatch):
    assert run(files, *RANK) == 0
    stdout = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr("sys.stdout", stdout)
    sides = ["--source", str(files / "en.jsonl"), "--target", str(files / "de.jsonl")]
    assert main(["align", "--model", "m", *sides, *RANK, "--output", "-"]) == 0
    assert stdout.buffer.getvalue().decode() == (files / "out.tsv").read_text()


def test_nothing_is_left_beside_the_output(files, encoder):
    before = {path.name for path in files.iterdir()}
    assert run(files, *RANK) == 0
    assert {path.name for path in files.iterdir()} == before | {"out.tsv"}


def test_candidates_stay_within_a_domain_and_urls_come_first(files, encoder, caplog):
    with caplog.at_level("INFO"):
        assert run(files, *RANK, "--domain", "site", "--url-matching") == 0
    found = read(files / "out.tsv")
    site = {row["id"]: row["site"] for row in ROWS}
    assert all(site[source] == site[target] for _, source, target in found)
    urls = [[row.get("url") for row in side(code)] for code in FUNCTION_WORDS]
    accepted = match_urls(*urls, "en", "de")
    sites = [[row["site"] for row in side(code)] for code in FUNCTION_WORDS]
    check_same(found, expected_pairs(encoder, domains=sites, accepted=accepted))
    assert {found[0][1:], found[1][1:]} == {("en4", "de4"), ("en8", "de8")}
    assert found[0][0] == np.inf and "2 pairs by their URLs" in caplog.text


def test_packed_sentences(files, encoder):
    assert run(files, *RANK, "--document-mode", "packed") == 0
    rows = []
    for row in ROWS:
        (packs,) = encoder.document_inputs([row["sentences"]], "packed")
        rows.append(row | {"sentences": packs})
    assert sum(len(row["sentences"]) for row in rows) < sum(len(r["sentences"]) for r in ROWS)
    check_same(read(files / "out.tsv"), expected_pairs(encoder, rows=rows))


def test_empty_documents_are_kept_never_matched_and_told(files, encoder, caplog):
    rows = [row | {"sentences": ["", " "]} if row["id"] in ("en3", "de7") else row for row in ROWS]
    for code in FUNCTION_WORDS:
        (files / f"{code}.jsonl").write_text(lines(side(code, rows)))
    for mode in ("sentences", "packed"):
        with caplog.at_level("INFO"):
            assert run(files, *RANK, "--overwrite", "--document-mode", mode) == 0
        found = read(files / "out.tsv")
        assert len(found) == NUM_DOCUMENTS - 1
        assert not {"en3", "de7"} & {name for pair in found for name in pair[1:]}
        assert "1 without text, never matched" in caplog.text


@pytest.mark.parametrize("text", ["", lines([side("en")[0] | {"sentences": []}])])
def test_a_side_without_any_text_gives_an_empty_file(files, encoder, text):
    (files / "en.jsonl").write_text(text)
    assert run(files, *RANK) == 0
    assert (files / "out.tsv").read_text() == ""


def test_one_document_on_each_side(files, encoder):
    for code in FUNCTION_WORDS:
        (files / f"{code}.jsonl").write_text(lines(side(code)[:1]))
    assert run(files, "--debias", "0") == 0
    assert [pair[1:] for pair in read(files / "out.tsv")] == [("en0", "de0")]


def test_a_threshold(files, encoder):
    assert run(files, *RANK) == 0
    scores = [pair[0] for pair in read(files / "out.tsv")]
    between = (scores[9] + scores[10]) / 2
    assert run(files, *RANK, "--overwrite", "--threshold", between) == 0
    assert [pair[0] for pair in read(files / "out.tsv")] == scores[:10]


@pytest.mark.parametrize(
    ("options", "settings", "message"),
    [
        ((), {"model": None}, "--model is needed, or --source-embeddings and"),
        ((), {"source": "none.jsonl"}, "none.jsonl: no such file"),
        ((), {"target": "en.jsonl"}, "are one file; choose by --languages"),
        (("--languages", "en"), {}, "--languages: must be two codes"),
        (("--k", 0), {}, "--k 0 must be at least 1"),
        (("--candidates", 0), {}, "--candidates 0 must be at least 1"),
        (("--memory-mb", 0), {}, "--memory-mb 0 must be positive"),
        (("--dim", 4), {}, "--dim 4: must be positive, and goes with ready vectors only"),
        (("--gold", "none.tsv"), {}, "--gold none.tsv: no such file"),
        (("--center", "--debias", 0), {}, "--center: goes with debiasing"),
        (("--raw-products", "--similarity", "cosine"), {}, "goes with --similarity margin"),
        ((), {"output": "none/out.tsv"}, "none/out.tsv: its directory does not exist"),
        ((), {"output": "gold.tsv"}, "gold.tsv: exists; choose another --output"),
    ],
)
def test_wrong_use_is_refused_before_any_work(
    files, fails, monkeypatch, options, settings, message
):
    monkeypatch.setattr(xling_jax, "load", lambda path: pytest.fail("loaded"))
    assert message in fails(run(files, *options, **settings), 2)


def test_broken_documents_are_named_before_any_work(files, fails, monkeypatch):
    monkeypatch.setattr(xling_jax, "load", lambda path: pytest.fail("loaded"))
    rows = side("de")
    (files / "de.jsonl").write_text(lines([*rows, rows[2]]))
    assert "de.jsonl:31: an id may stand once" in fails(run(files), 1)
    del rows[1]["site"]
    (files / "de.jsonl").write_text(lines(rows))
    assert "de.jsonl:2: a document must have 'site'" in fails(run(files, "--domain", "site"), 1)
    rows[1]["site"] = "s"
    (files / "de.jsonl").write_text(lines([row | {"url": None} for row in rows]))
    assert "--url-matching needs documents with 'url'" in fails(run(files, "--url-matching"), 1)
    line = fails(run(files, source="all.jsonl.gz"), 1)
    assert "all.jsonl.gz: holds documents in en, de; choose by --languages" in line
    line = fails(run(files, "--languages", "en,fr"), 1)
    assert "unknown language 'fr'; known: de" in line
    (files / "gold.tsv").write_text("en0\tde99\n")
    line = fails(run(files, "--gold", files / "gold.tsv"), 1)
    assert "gold.tsv:1:" in line and "de.jsonl has no document 'de99'" in line
    assert not (files / "out.tsv").exists()


def test_vectors_that_do_not_fit_are_named(files, encoder, ready, fails):
    vectors = np.load(files / "en.npy")
    np.save(files / "en.npy", vectors[:-1])
    line = fails(run(files, *ready, model=None), 1)
    assert f"for each of the {len(vectors)} sentences" in line and "found" in line
    np.save(files / "en.npy", vectors[:, :-1])
    line = fails(run(files, *ready, model=None), 1)
    assert "must have the same size; source has 15, target 16" in line


def evaluate(files, *options, data=("all.jsonl.gz",), output="results"):
    argv = ["evaluate", "alignment", "--output", str(files / output)]
    argv += ["--data", *(str(files / name) for name in data)]
    return main([*argv, *map(str, options)])


@pytest.fixture
def same_ids(files):
    """One file in which translations have one id."""
    (files / "same.jsonl").write_text(lines([row | {"id": row["id"][2:]} for row in ROWS]))


def test_evaluation_of_all_cells_and_baselines(files, same_ids, encoder, capsys):
    options = ("--model", "m", *RANK, "--baselines", "--languages", "en,de")
    assert evaluate(files, *options, data=["same.jsonl"]) == 0
    written = json.loads((files / "results" / "results.json").read_text())
    assert written["task"] == "alignment" and written["model"]["fingerprint"] == "abc"
    cells = written["matrices"]["same"]["cells"]
    assert list(cells) == [*CELLS, "document-cosine", "document-margin"]
    for name, settings in (
        ("biased-mean-cosine", {"rank": None, "weighting": "none", "similarity": "cosine"}),
        ("debiased-weighted-margin", {}),
    ):
        correct = right(expected_pairs(encoder, **settings))
        assert cells[name]["en-de"]["num_correct"] == correct
        key = f"same/recall_{name.replace('-', '_')}"
        assert written["metrics"][key] == correct / NUM_DOCUMENTS
    primary = written["metrics"]["same/recall_debiased_weighted_margin"]
    assert written["metrics"]["same/recall"] == primary
    assert written["settings"]["baseline_tokens"] == {"document": 60}
    table = (files / "results" / "results.md").read_text()
    assert table.strip() == capsys.readouterr().out.strip()
    assert f"{100 * primary:.1f}" in table and "debiased, weighted" in table


def test_evaluation_with_two_files_and_gold_pairs(files, encoder):
    options = ("--model", "m", *RANK, "--gold", files / "gold.tsv", "--cells")
    options += ("debiased-weighted-margin", "--url-matching", "--domain", "site")
    assert evaluate(files, *options, data=["en.jsonl", "de.jsonl"]) == 0
    written = json.loads((files / "results" / "results.json").read_text())
    (cell,) = written["matrices"]["gold"]["cells"].values()
    assert cell["en-de"]["num_gold"] == NUM_DOCUMENTS
    assert run(files, *RANK, "--url-matching", "--domain", "site") == 0
    assert cell["en-de"]["num_correct"] == right(read(files / "out.tsv"))


def test_evaluation_of_ready_vectors_and_of_packs(files, same_ids, encoder):
    directory = files / "vectors"
    directory.mkdir()
    for code in FUNCTION_WORDS:
        np.save(directory / f"same.{code}.npy", sentence_vectors(encoder, code)[0])
    metrics = []
    for options in (
        ("--embeddings", directory),
        ("--model", "m"),
        ("--model", "m", "--document-mode", "packed"),
    ):
        assert evaluate(files, *options, *RANK, "--overwrite", data=["same.jsonl"]) == 0
        metrics.append(json.loads((files / "results" / "results.json").read_text())["metrics"])
    assert metrics[0] == metrics[1] != metrics[2]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--cells", "best"), "--cells: 'best' is none of biased-mean-cosine"),
        (("--cells", "debiased-mean-margin", "--debias", "0"), "with --debias 0"),
        (("--gold", "none.tsv"), "--gold none.tsv: no such file"),
        (("--k", "0"), "--k 0 must be at least 1"),
    ],
)
def test_wrong_use_of_evaluation_is_refused(files, same_ids, fails, options, message):
    status = evaluate(files, "--model", "m", *options, data=["same.jsonl"])
    assert message in fails(status, 2)
    assert not (files / "results").exists()
