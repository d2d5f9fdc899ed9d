"""`xling mine` from its arguments to its files: pairs, filtering, bad text, bad vectors."""

import gzip
import io
import json
import sys
import types

import numpy as np
import pytest

import xling_jax
from tests.align import laser_mining
from xling_jax.align import mining
from xling_jax.align.filters import Filters
from xling_jax.cli import mine_cut
from xling_jax.cli.main import main
from xling_jax.corpora.specs import read_corpus
from xling_jax.files.lines import COMPRESSED_SUFFIXES

WORDS = ("sun", "ice", "rain", "wind", "snow", "fog", "hail", "dew")
DIM = 6


def vector(text):
    """A word's meaning with something of its language; the same text, the same vector."""
    language, word = text.split(maxsplit=1)
    meaning = np.random.default_rng(WORDS.index(word)).standard_normal(DIM) + 1
    return meaning + 0.2 * np.random.default_rng(len(language)).standard_normal(DIM)


SOURCE = [f"en {word}" for word in WORDS]
TARGET = [f"deu {word}" for word in reversed(WORDS[2:])]


@pytest.fixture
def encoded(monkeypatch):
    """A stand-in for the encoder; returns the texts it has been given."""
    texts = []

    def encode_stream(sentences, normalize=False):
        for sentence in sentences:
            texts.append(sentence)
            row = vector(sentence)[None]
            yield row / np.linalg.norm(row) if normalize else row

    stand_in = types.SimpleNamespace(
        encode_stream=encode_stream, dim=DIM, calibration=None, fingerprint="f"
    )
    monkeypatch.setattr(xling_jax, "load", lambda path, dtype=None: stand_in)
    return texts


@pytest.fixture
def files(tmp_path, caplog):
    """Two texts and their vectors."""
    caplog.set_level("INFO")
    for name, lines in (("a.en", SOURCE), ("b.de", TARGET)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
        vectors = np.array([vector(line) for line in lines], np.float32)
        np.save(tmp_path / f"{name}.npy", vectors)
        vectors.tofile(tmp_path / f"{name}.bin")
    return tmp_path


def expected_pairs(source=SOURCE, target=TARGET, **settings):
    """What LASER's procedure finds, as (score, source text, target text)."""
    vectors = [[vector(text) for text in side] for side in (source, target)]
    found = laser_mining.mine(*vectors, threshold=settings.pop("threshold", -np.inf), **settings)
    return [(score, source[i], target[j]) for score, i, j in found]


def read(path):
    rows = [line.split("\t") for line in path.read_text(encoding="utf-8").splitlines()]
    return [(float(score), source, target) for score, source, target in rows]


def check_same(found, expected):
    assert [pair[1:] for pair in found] == [pair[1:] for pair in expected]
    np.testing.assert_allclose([pair[0] for pair in found], [p[0] for p in expected], atol=2e-6)


def mine(directory, *options, model="m", source="a.en", target="b.de", output="out.tsv"):
    argv = ["mine", "--output", str(directory / output)]
    argv += ["--model", model] if model else []
    argv += ["--source", str(directory / source)] if source else []
    argv += ["--target", str(directory / target)] if target else []
    return main([*argv, *map(str, options)])


def ready(directory, suffix="npy"):
    return (
        "--source-embeddings",
        directory / f"a.en.{suffix}",
        "--target-embeddings",
        directory / f"b.de.{suffix}",
    )


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"margin": "distance", "k": 1, "retrieval": "bwd"},
        {"margin": "absolute", "retrieval": "intersect", "threshold": 0.5},
    ],
)
def test_pairs_are_those_of_laser(files, encoded, settings):
    options = [word for key, value in settings.items() for word in (f"--{key}", value)]
    assert mine(files, *options) == 0
    found = read(files / "out.tsv")
    check_same(found, expected_pairs(**settings))
    assert [pair[0] for pair in found] == sorted((pair[0] for pair in found), reverse=True)
    assert ("en rain", "deu rain") in {pair[1:] for pair in found}


def test_ready_vectors_of_one_side_or_both_in_place_of_a_model(files, encoded, monkeypatch):
    assert mine(files, "--source-embeddings", files / "a.en.bin") == 0
    check_same(read(files / "out.tsv"), expected_pairs())
    assert encoded == TARGET
    monkeypatch.setattr(xling_jax, "load", lambda path, dtype=None: pytest.fail("loaded"))
    for options in (ready(files), (*ready(files, "bin"), "--dim", DIM)):
        assert mine(files, *options, "--overwrite", model=None) == 0
        check_same(read(files / "out.tsv"), expected_pairs())


def test_stdout(files, encoded, monkeypatch):
    assert mine(files) == 0
    stdout = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    monkeypatch.setattr("sys.stdout", stdout)
    sides = ("--source", str(files / "a.en"), "--target", str(files / "b.de"))
    assert main(["mine", "--model", "m", "--output", "-", *sides]) == 0
    assert stdout.buffer.getvalue() == (files / "out.tsv").read_bytes()


def test_of_repeated_lines_the_last_vector_counts_as_in_laser(files):
    """LASER's `unique_embeddings` keeps the last row of a text, in the order of the first rows."""
    rng = np.random.default_rng(5)
    lines = [f"en {word}" for word in (*WORDS, *WORDS[3:])]
    (files / "twice.en").write_text("".join(f"{line}\n" for line in lines))
    vectors = np.array([vector(line) for line in lines]) + 0.3 * rng.standard_normal((13, DIM))
    np.save(files / "twice.npy", vectors.astype(np.float32))
    last = {line: row for row, line in enumerate(lines)}  # keeps the first place, the last value
    source = vectors[[*last.values()]]
    target = [vector(text) for text in TARGET]
    for retrieval in ("max", "intersect", "fwd", "bwd"):
        options = ("--source-embeddings", files / "twice.npy", "--retrieval", retrieval)
        options += ("--target-embeddings", files / "b.de.npy", "--overwrite")
        assert mine(files, *options, source="twice.en", model=None) == 0
        expected = laser_mining.mine(source, target, retrieval=retrieval)
        check_same(read(files / "out.tsv"), [(s, [*last][i], TARGET[j]) for s, i, j in expected])


def test_several_files_a_side_are_mined_as_one(files, encoded):
    assert mine(files) == 0
    whole = (files / "out.tsv").read_bytes()
    (files / "parts").mkdir()
    for number, lines in enumerate((SOURCE[:3], [], SOURCE[3:], SOURCE[:2])):
        text = "".join(f"{line}\n" for line in lines)
        with gzip.open(files / f"parts/{number}.en.gz", "wt") as file:
            file.write(text)
        vectors = np.array([vector(line) for line in lines], np.float32).reshape(-1, DIM)
        np.save(files / f"parts/{number}.npy", vectors)
    assert mine(files, "--overwrite", source="parts/*.en.gz") == 0
    assert (files / "out.tsv").read_bytes() == whole
    vectors = ("--source-embeddings", *sorted((files / "parts").glob("*.npy")), "--overwrite")
    assert mine(files, *vectors, source="parts/*.en.gz") == 0
    assert (files / "out.tsv").read_bytes() == whole


def test_a_workdir_keeps_vectors_and_neighbors_until_a_text_changes(files, encoded, monkeypatch):
    assert mine(files, "--workdir", files / "w") == 0
    assert encoded == SOURCE + TARGET
    encoded.clear()
    again = ("--workdir", files / "w", "--overwrite")
    with monkeypatch.context() as patched:
        patched.setattr(mining, "find_candidates", lambda *args, **kwargs: pytest.fail("searched"))
        assert mine(files, *again, "--threshold", 1.1) == 0
    check_same(read(files / "out.tsv"), expected_pairs(threshold=1.1))
    (files / "b.de").write_text("deu snow\ndeu fog\n")
    assert mine(files, *again) == 0
    assert encoded == ["deu snow", "deu fog"] and not [*files.glob(".out*")]
    check_same(read(files / "out.tsv"), expected_pairs(target=["deu snow", "deu fog"]))


def test_filters_count_what_they_drop(files, caplog):
    """Vectors pair line i with line i; each pair but the first fails another filter of pairs."""
    source = ("Nine 9 lives", "Same text here", "Only 1,000 left", "A b c d e f g h", "Sun is up")
    target = ("Neun 9 Leben", "same text, here!", "Nur 999 da", "A x", "sun IS up?")
    for name, lines in (("a.en", (*source, "word")), ("b.de", target)):
        (files / name).write_text("".join(f"{line}\n" for line in lines))
        np.save(files / f"{name}.npy", np.eye(len(lines), 7, dtype=np.float32) + 0.1)
    options = ("--min-words", 2, "--drop-copies", "--numbers-agree")
    options += ("--max-length-ratio", 3, *ready(files))
    assert mine(files, *options, model=None) == 0
    assert "6 lines, 5 distinct texts; not mined: 1 too_short\n" in caplog.text
    assert "b.de: 5 lines, 5 distinct texts\n" in caplog.text
    assert [pair[1:] for pair in read(files / "out.tsv")] == [(source[0], target[0])]
    assert "kept 1 of 5 pairs; dropped: 2 copied, 1 length_ratio, 1 numbers" in caplog.text
    (files / "given.tsv").write_text("".join(map("{}\t{}\n".format, source, target)) + "\tA x\n")
    options = ("--pairs", files / "given.tsv", "--drop-copies", "--overwrite", *ready(files))
    assert mine(files, *options, model=None) == 0
    kept = [pair[1:] for pair in read(files / "out.tsv")]
    assert kept == [(source[i], target[i]) for i in (0, 2, 3)] + [("", "A x")]


def test_duplicates_count_once_and_blank_and_broken_lines_not_at_all(files, encoded, caplog):
    lines = [SOURCE[0], "", *SOURCE, "   ", SOURCE[3]]
    broken = b"\xff\xfe\n" + b"x" * 1_000_001 + b"\n"
    (files / "a.en").write_bytes("".join(f"{line}\n" for line in lines).encode() + broken)
    assert mine(files) == 0
    check_same(read(files / "out.tsv"), expected_pairs())
    assert encoded == SOURCE + TARGET
    assert "14 lines, 8 distinct texts" in caplog.text
    assert "2 blank, 1 broken_utf8, 1 line_too_long, 2 repeated" in caplog.text


def scores_of_given(pairs, source, target):
    """Ratio margins of pairs to the four nearest in two texts, in float64."""
    cosine = np.array(
        laser_mining.cosines([vector(t) for t in source], [vector(t) for t in target])
    )
    x, y = np.sort(cosine, 1)[:, -4:].mean(1), np.sort(cosine, 0)[-4:].mean(0)
    places = [(source.index(a), target.index(b)) for a, b in pairs]
    return [cosine[i, j] / ((x[i] + y[j]) / 2) for i, j in places]


GIVEN = [
    ("en sun", "deu fog"),
    ("en rain", "deu rain"),
    ("en sun", "deu fog"),
    ("en ice", "deu dew"),
]


@pytest.fixture
def given(files):
    (files / "given.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in GIVEN))
    return files / "given.tsv"


def test_given_pairs_are_scored_in_their_order(files, given, encoded):
    expected = scores_of_given(GIVEN, SOURCE, TARGET)
    for model, options in (("m", ()), (None, ready(files))):
        assert mine(files, "--pairs", given, "--overwrite", *options, model=model) == 0
        found = read(files / "out.tsv")
        assert [pair[1:] for pair in found] == GIVEN
        np.testing.assert_allclose([pair[0] for pair in found], expected, atol=2e-6)


def test_given_pairs_alone_or_in_neither_text_add_to_the_neighborhoods(files, given, encoded):
    (files / "b.de").write_text("deu rain\ndeu hail\n")
    for sides, *texts in (
        ({"source": None, "target": None}, *([*dict.fromkeys(side)] for side in zip(*GIVEN))),
        ({}, SOURCE, ["deu rain", "deu hail", "deu fog", "deu dew"]),
    ):
        assert mine(files, "--pairs", given, "--overwrite", **sides) == 0
        expected = scores_of_given(GIVEN, *texts)
        np.testing.assert_allclose([p[0] for p in read(files / "out.tsv")], expected, atol=2e-6)


def test_given_pairs_with_a_blank_or_broken_side_score_minus_infinity(files, encoded):
    (files / "given.tsv").write_bytes(b"en sun\tdeu fog\n\tdeu fog\nen ice\t \n\xff\t\xff\n")
    assert mine(files, "--pairs", files / "given.tsv") == 0
    found = read(files / "out.tsv")
    assert [pair[0] for pair in found[1:]] == [-np.inf] * 3
    assert [pair[1:] for pair in found[1:]] == [("", "deu fog"), ("en ice", " "), ("", "")]


def test_filters_drop_given_pairs_with_a_blank_side_too(files, encoded, caplog):
    (files / "given.tsv").write_text("en sun\tdeu fog\n\tdeu fog\nen rain\tdeu rain\n")
    options = ("--pairs", files / "given.tsv", "--min-cosine", 0.9, "--overwrite")
    assert mine(files, *options) == 0
    assert "kept 1 of 3 pairs; dropped: 2 cosine" in caplog.text
    assert [pair[1:] for pair in read(files / "out.tsv")] == [("en rain", "deu rain")]
    assert mine(files, *options[:2], "--min-words", 2, "--overwrite") == 0
    kept = [("en sun", "deu fog"), ("en rain", "deu rain")]
    assert [pair[1:] for pair in read(files / "out.tsv")] == kept


def test_pairs_of_any_corpus_are_scored_and_written_as_a_corpus(files, encoded, capsys, caplog):
    rows = [dict(zip(("en", "de"), pair)) for pair in GIVEN]
    expected = scores_of_given(GIVEN, SOURCE, TARGET)
    (files / "h.tsv").write_text("id\tde\ten\n" + "".join(f"1\t{b}\t{a}\n" for a, b in GIVEN))
    (files / "m.tsv").write_text("".join(f"1.5\t{a}\t{b}\n" for a, b in GIVEN) + "en sun\n")
    (files / "j.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (files / "w.tsv").write_text("".join(f"{b}\t{a}\tx\n" for a, b in GIVEN))
    for name, header in (
        ("h.tsv?columns=en,de", "score\ten\tde"),
        ("j.jsonl", "score\ten\tde"),
        ("m.tsv", None),
        ("w.tsv?columns=target,source,note", None),
    ):
        assert mine(files, "--pairs", files / name, "--overwrite") == 0
        first, *lines = (files / "out.tsv").read_text().splitlines()
        lines = lines if header else [first, *lines]
        assert (first == header) == bool(header)
        assert [tuple(line.split("\t")[1:]) for line in lines][:4] == GIVEN
        scores = [float(line.split("\t")[0]) for line in lines]
        np.testing.assert_allclose(scores[:4], expected, atol=2e-6)
    assert "m.tsv:5: a row must have 3 cells (score, source, target); found 1" in caplog.text
    assert mine(files, "--pairs", files / "w.tsv", "--overwrite") == 1
    assert "w.tsv:1: a pair must be source<TAB>target; found 3 col" in capsys.readouterr().err


def test_languages_of_given_pairs_name_columns_and_may_drop_what_is_in_another(
    files, caplog, capsys
):
    pytest.importorskip("py3langid")
    german = "Das Haus steht in einer kleinen Straße am Fluss."
    english = "The house stands in a small street by the river."
    rows = [f"x\t{german}\t{english}", f"x\t{english}\t{english}"]
    (files / "g.tsv").write_text("\n".join(["fr\tde\ten", *rows]) + "\n")
    options = ("--pairs", files / "g.tsv", "--languages", "de,en", "--model", "mini")
    options += ("--drop-other-languages",)
    assert mine(files, *options, model=None, source=None, target=None) == 0
    assert "kept 1 of 2 pairs; dropped: 1 wrong_language" in caplog.text
    header, pair = (files / "out.tsv").read_text().splitlines()
    assert header == "score\tde\ten" and pair.split("\t")[1:] == [german, english]
    options = (*options[:3], "it,en", *options[4:], "--overwrite")
    assert mine(files, *options, model=None, source=None, target=None) == 2
    assert "g.tsv:1: pairs must be in it and en; found fr, de, en" in capsys.readouterr().err
    options = ("--pairs", f"{files}/g.tsv?columns=it:nope,en", *options[2:])
    assert mine(files, *options, model=None, source=None, target=None) == 2
    assert "g.tsv: has no column 'nope'; found fr, de, en" in capsys.readouterr().err
    options = ("--pairs", files / "g.tsv", *options[2:])
    (files / "g.tsv").write_text("\n".join(["eng\tdeu", f"{english}\t{german}"]) + "\n")
    options = (*options[:3], "de,en", *options[4:])
    assert mine(files, *options, model=None, source=None, target=None) == 0
    header, pair = (files / "out.tsv").read_text().splitlines()
    assert header == "score\tdeu\teng" and pair.split("\t")[1:] == [german, english]


def test_languages_of_a_memory_identify_nothing_unless_asked_to(files, monkeypatch):
    monkeypatch.setitem(sys.modules, "py3langid", None)
    units = (
        "".join(f'<tuv xml:lang="{code}"><seg>{text}</seg></tuv>' for code in ("de", "en"))
        for text in ("OK", "Hotel")  # said to be in neither
    )
    body = "".join(f"<tu>{unit}</tu>" for unit in units)
    (files / "m.tmx").write_text(f'<tmx version="1.4"><header/><body>{body}</body></tmx>')
    options = ("--pairs", files / "m.tmx", "--languages", "de,en", "--model", "mini")
    assert mine(files, *options, model=None, source=None, target=None, output="o.tmx") == 0
    assert (files / "o.tmx").read_text().count("<tu>") == 2


def test_pairs_are_written_in_the_format_of_the_suffix(files, encoded, fails):
    (files / "a.en").write_bytes(b"en\x0bsun\n")  # a line end to some
    expected = [pair[1:] for pair in expected_pairs(source=["en sun"])]
    np.save(files / "a.en.npy", vector("en sun")[None].astype(np.float32))
    options = (*ready(files), "--top", 1, "--overwrite")
    read_back = lambda spec: [(*row.texts.values(),) for row in read_corpus(spec, ("en", "de"))]
    for output, spec in (
        ("o.jsonl", "o.jsonl"),
        ("o.tmx", "o.tmx"),
        ("o.de-en", "moses:{}/o.de-en"),
        ("o.parquet", "o.parquet"),
    ):
        if output == "o.parquet":
            pytest.importorskip("pyarrow")
        assert mine(files, *options, model=None, output=output) == 0
        spec = spec.format(files) if ":" in spec else str(files / spec)
        assert [(" ".join(a.split()), b) for a, b in read_back(spec)] == expected
    assert (files / "o.de-en.en").read_text() == "en sun\n"
    line = fails(mine(files, *ready(files), model=None, output="o.de-en"), 2)
    assert line.endswith("o.de-en.de: exists; choose another --output or add --overwrite")
    line = fails(mine(files, *options, model=None, output="o.fr-en"), 2)
    assert line.endswith("o.fr-en: the texts are en and de")
    (files / "b.txt").write_bytes((files / "b.de").read_bytes())  # of an unknown language
    known = {"model": None, "target": "b.txt", "output": "u.de-en"}
    assert mine(files, *options, **known) == 0
    assert (files / "u.de-en.en").read_text() == "en sun\n"
    line = fails(mine(files, *options, model=None, output="o.csv"), 2)
    assert "o.csv: .csv is not written; use .tsv, .jsonl" in line
    line = fails(mine(files, *options, model=None, target="b.txt", output="o.tmx"), 2)
    assert "o.tmx: TMX needs the languages, such as --languages de,en" in line


def test_texts_of_one_language_are_both_written(files, encoded, fails):
    (files / "b.de").rename(files / "c.en")
    options = {"target": "c.en", "model": None}
    [(_, source, target), *_] = expected_pairs()
    assert mine(files, *ready(files), output="o.jsonl", **options) == 0
    row = json.loads((files / "o.jsonl").read_text().splitlines()[0])
    assert (row["source"], row["target"]) == (source, target)
    line = fails(mine(files, *ready(files), output="o.en-en", **options), 2)
    assert line.endswith("o.en-en: must end in two languages, such as corpus.de-en")
    (files / "g.tsv").write_text("en\ten\na\tb\n")
    options = {"source": None, "target": None, "output": "-"}
    line = fails(mine(files, "--pairs", files / "g.tsv", **options), 2)
    assert "g.tsv:1: pairs must be in two languages; found en, en; choose two, such as" in line


def test_outputs_that_cannot_be_files_are_refused_before_any_work(files, encoded, fails):
    (files / "folder").mkdir()
    refused = [(f"out.tsv{suffix}", "uncompressed; drop") for suffix in COMPRESSED_SUFFIXES]
    refused += [("folder", "is a directory; name a file")]
    refused += [("/dev/null", "is not a regular file; use - for stdout")]
    (files / "old.tsv").write_text("precious")
    for name, message in refused:
        line = fails(mine(files, "--overwrite", output=name), 2)
        assert f"--output {files / name}: " in line and message in line
    line = fails(mine(files, "--overwrite", output="a.en"), 2)
    assert "a.en: is also --source; choose another" in line
    line = fails(mine(files, output="old.tsv"), 2)
    assert "old.tsv: exists; choose another --output or add --overwrite" in line
    assert not encoded and (files / "old.tsv").read_text() == "precious"


@pytest.mark.parametrize(
    ("options", "settings", "message"),
    [
        ((), {"model": None}, "--model is required, or --source-embeddings and"),
        ((), {"source": None}, "--source and --target are required"),
        ((), {"source": "none.en"}, "none.en: no such file"),
        (("--source", "-", "--target", "-"), {"source": None, "target": None}, "can be stdin"),
        (("--k", 0), {}, "--k=0 must be positive"),
        (("--min-cosine", 2), {}, "--min-cosine 2: must be from -1 to 1"),
        (("--workdir", __file__), {}, "test_mine.py: is a file; name a directory"),
        (("--threshold", "nan"), {}, "--threshold nan: must be a number or auto"),
        (("--dim", 4), {}, "--dim 4: must be positive, and requires --SIDE-embeddings"),
        (("--pairs", "none.tsv"), {}, "none.tsv: no such file"),
        ((), {"output": "none/out.tsv"}, "none/out.tsv: no such directory"),
        ("ready", {}, "there is nothing to embed"),
        (
            "ready",
            {"model": None, "extra": ("--precision", 0.9)},
            "--precision 0.9: needs --model, a calibrated one; or use --top or --threshold",
        ),
    ],
)
def test_wrong_use_is_refused_before_any_work(
    files, fails, monkeypatch, options, settings, message
):
    monkeypatch.setattr(xling_jax, "load", lambda path, dtype=None: pytest.fail("loaded"))
    settings = dict(settings)
    if options == "ready":
        options = ready(files) + settings.pop("extra", ())
    assert message in fails(mine(files, *options, **settings), 2)
    assert not (files / "out.tsv").exists()


def test_precision_without_a_calibrated_model_is_refused(files, encoded, fails):
    line = fails(mine(files, "--precision", 0.9), 2)
    assert "--precision 0.9: m: not calibrated; run xling calibrate --model m --data FILE" in line
    assert not encoded and not (files / "out.tsv").exists()


@pytest.mark.parametrize("sizes", [(1, 8), (3, 3)])
def test_precision_of_too_few_sentences_is_refused_before_any_work(files, fails, sizes):
    for name, texts, size in zip(("a.en", "b.de"), (SOURCE, SOURCE), sizes):
        (files / name).write_text("".join(f"{text}\n" for text in texts[:size]))
    line = fails(mine(files, "--precision", 0.95, model="mini"), 2)
    assert "needs at least 2 sentences on one side and 4 on the other" in line
    assert f"found {sizes[0]} and {sizes[1]}; use --top or --threshold" in line
    assert not [path for path in files.iterdir() if "out.tsv" in path.name]


@pytest.mark.parametrize("count", [1, 3, 99])
def test_the_best_pairs_are_kept(files, given, encoded, caplog, count):
    assert mine(files, "--top", count) == 0
    expected = expected_pairs()
    check_same(read(files / "out.tsv"), expected[:count])
    assert f"kept {min(count, len(expected))} of {len(expected)} pairs" in caplog.text
    assert mine(files, "--top", count, "--pairs", given, "--overwrite") == 0
    scores = scores_of_given(GIVEN, SOURCE, TARGET)
    best = sorted(np.argsort(-np.array(scores), kind="stable")[:count])
    assert [pair[1:] for pair in read(files / "out.tsv")] == [GIVEN[place] for place in best]


def test_what_a_cut_keeps_and_says(caplog):
    caplog.set_level("INFO")
    rows, scores = np.arange(5), np.array([3, 1, 4, 2, 3], np.float32)
    precisions = np.array([1.0, 0.9, 0.8, 0.7, 0.6])
    calibration = types.SimpleNamespace(
        k=4,
        precisions=lambda ranked: precisions,
        count_for=lambda ranked, precision: 3,
        describes=lambda ranked: True,
    )
    texts = ["a", "b", "in 7", "c", "d"], ["x", "y", "in 8", "z", "w"]

    def kept(k=4, numbers_agree=False, unusable=None, **cut):
        pairs = mining.MinedPairs(rows, rows, scores, mining.RunnersUp("ratio", k, 1.0, 0.5))
        how = {"unusable": unusable, "unit": "margin"}
        problem_of = Filters(numbers_agree=numbers_agree).pair_problem
        found = mine_cut.Cut(**cut).apply(pairs, texts, problem_of, calibration, **how)
        return found.source.tolist(), caplog.messages[-1]

    three = "kept 3 of 5 pairs with margin > 2.5"
    assert kept(top=3) == kept(precision=0.8) == ([0, 2, 4], f"{three}, expected precision 0.80")
    assert kept(k=3, top=3) == ([0, 2, 4], three)  # not the neighborhood of the calibration
    said = "kept 1 of 5 pairs with margin > 3, expected precision 1.00"
    assert kept(threshold=3) == ([2], said)
    found, said = kept(top=2, numbers_agree=True)
    assert found == [0, 4] and said.endswith(
        "margin > 2.5, expected precision 0.80; dropped: 1 numbers"
    )
    # Pairs with a blank side, which stay without a cut, are no translations.
    scores[3:], blank = -np.inf, np.array([False, False, False, True, True])
    said = "kept 5 of 5 pairs, expected precision 0.48"  # three of five at 0.8
    assert kept(unusable=blank) == ([0, 1, 2, 3, 4], said)


def test_the_valley_is_a_threshold_and_an_estimate_that_does_not_hold_is_not_given(caplog):
    caplog.set_level("INFO")
    random = np.random.default_rng(0)
    scores = np.concatenate([random.normal(1.4, 0.05, 300), random.normal(0.8, 0.05, 700)])
    texts, rows = [""] * 1000, np.arange(1000)
    pairs = mining.MinedPairs(rows, rows, scores.astype(np.float32))
    calibration = types.SimpleNamespace(
        k=4, describes=lambda ranked: False, count_for=lambda ranked, precision: 30
    )
    how = {"unusable": None, "unit": "margin"}
    cut = lambda pairs, **cut: mine_cut.Cut(**cut).apply(
        pairs, (texts, texts), Filters().pair_problem, calibration, **how
    )
    assert cut(pairs, threshold="auto").source.tolist() == [*range(300)]
    assert caplog.messages[-1].startswith("kept 300 of 1,000 pairs with margin > 1.1")
    assert "--threshold auto: 300 pairs, margin > 1.1" in caplog.text
    assert len(cut(pairs, precision=0.9)) == 30  # as asked for
    assert "--threshold auto takes 1.1" in caplog.text and "expected precision" not in caplog.text
    pairs = pairs.take(slice(300))
    assert len(cut(pairs, threshold="auto")) == 300
    assert "the scores have no valley; all pairs are kept" in caplog.text


_ROW_5 = np.where(np.arange(len(SOURCE))[:, None] == 5, np.nan, np.ones(DIM))


@pytest.mark.parametrize(
    ("name", "shape", "both", "words"),
    [
        ("a.en.npy", _ROW_5, True, ["a.en.npy[5] must be finite"]),
        ("b.de.npy", (len(TARGET), DIM + 1), True, ["a.en.npy and", "the same dim; got 6 and 7"]),
        ("a.en.npy", (len(SOURCE), DIM + 1), False, ["a.en.npy", "6 dimensions; found 7"]),
        ("a.en.npy", (5, DIM), True, ["a.en.npy", "8 lines", "found 5"]),
    ],
)
def test_vectors_that_do_not_fit_are_named(files, encoded, fails, name, shape, both, words):
    values = np.ones(shape) if isinstance(shape, tuple) else shape
    np.save(files / name, values.astype(np.float32))
    options = ready(files) if both else ready(files)[:2]
    line = fails(mine(files, *options, model=None if both else "m"), 1)
    assert all(word in line for word in words), line
    assert not (files / "out.tsv").exists()


def test_pairs_that_cannot_be_scored_are_named(files, given, encoded, fails):
    (files / "b.de").write_text("deu rain\n")
    np.save(files / "b.de.npy", vector("deu rain")[None].astype(np.float32))
    line = fails(mine(files, "--pairs", given, *ready(files), model=None), 1)
    assert "given.tsv:1: the text is not a line of" in line and "b.de.npy" in line
    given.write_text("en sun\nen ice\n")
    line = fails(mine(files, "--pairs", given), 1)
    assert "given.tsv:1: a pair must be source<TAB>target; found 1" in line


@pytest.mark.parametrize(
    ("lines", "status", "told"),
    [
        (b"\xff\n\x00\n", 1, "2 lines, 0 distinct texts; not mined: 1 broken_utf8, 1 nul_byte"),
        (b"en sun\n\xff\n", 0, "broken lines: 1 of 2"),
        (b"\n\n", 0, ""),
    ],
)
def test_broken_text_is_told(files, encoded, capsys, caplog, lines, status, told):
    (files / "a.en").write_bytes(lines)
    assert mine(files) == status
    assert told in capsys.readouterr().err + caplog.text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--index", "nonsense"), "error: --index='nonsense': faiss refuses it"),
        (("--index", "IVF2,PQ4"), "index='IVF2,PQ4': faiss refuses it"),  # of 6 dimensions
        (("--index", "ivf:nprob=3"), "could not set parameter nprob"),
        (("--index", "ivf", "--backend", "jax"), "leave out --backend='jax'"),
    ],
)
def test_a_wrong_index_is_refused_before_anything_is_embedded(
    files, encoded, fails, options, message
):
    pytest.importorskip("faiss")
    assert message in fails(mine(files, *options), 2)
    assert encoded == []


def test_faiss_is_looked_for_before_any_work(files, fails, monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    monkeypatch.setattr(xling_jax, "load", lambda path, dtype=None: pytest.fail("loaded"))
    assert "pip install 'xling_jax[faiss]'" in fails(mine(files, "--index", "ivf"), 1)
    assert not (files / ".out.tsv.mining").exists()
