"""`xling align-sentences` from its arguments to its files, with the encoder in the package."""

import json

import pytest

from xling_jax.cli.main import main
from xling_jax.corpora.readers.xml_units import TmxReader

ENGLISH = [
    "The ferry to the island runs twice a day.",
    "Where is the station?",
    "The committee rejected the proposal. It was too expensive.",
    "I would like a cup of coffee.",
    "My brother lives in <London> & works at a bank.",
    "The weather was bad yesterday.",
]
GERMAN = [
    "Die Fähre zur Insel fährt zweimal am Tag.",
    "Wo ist der Bahnhof?",
    "Der Ausschuss hat den Vorschlag abgelehnt.",
    "Er war zu teuer.",
    "Mein Bruder wohnt in <London> & arbeitet bei einer Bank.",
    "Gestern war das Wetter schlecht.",
]
GROUPS = ["[0]:[0]", "[1]:[1]", "[2]:[2, 3]", "[3]:[]", "[4]:[4]", "[5]:[5]"]


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, text in (("a.en", ENGLISH), ("a.de", GERMAN)):
        (tmp_path / name).write_text("\n".join(text) + "\n", encoding="utf-8")
    for code, text in (("en", ENGLISH), ("de", GERMAN)):
        records = [
            {"id": "one", "lang": code, "sentences": text},
            {"id": f"{code}-2", "lang": code, "sentences": text[:2]},
        ]
        lines = "".join(json.dumps(record) + "\n" for record in records)
        (tmp_path / f"{code}.jsonl").write_text(lines)
    return tmp_path


def align(*words, source="a.en", target="a.de", output="out"):
    argv = ["align-sentences", "--model", "mini", "--source", source, "--target", target]
    return main([*argv, "--output", output, *words])


def without_costs(text):
    return [line.rpartition(":")[0] for line in text.splitlines()]


def test_groups_of_two_files_as_vecalign_writes_them(files):
    assert align("--format", "groups") == 0
    text = (files / "out").read_text()
    assert without_costs(text) == GROUPS
    assert all(0 <= float(line.rpartition(":")[2]) < 1.5 for line in text.splitlines())


def test_the_name_of_the_output_fits_its_format_and_the_languages(files, capsys):
    sides = {"source": "en.jsonl", "target": "de.jsonl"}
    assert align(output="o.csv") == 2
    assert "--output o.csv: .csv is not written; use .tsv" in capsys.readouterr().err
    assert align("--pairs", "ids", **sides, output="o.fr-en") == 2
    assert "--output o.fr-en: the texts are en and de" in capsys.readouterr().err
    assert align("--pairs", "ids", **sides, output="o.de-en") == 0
    assert (files / "o.de-en.en").read_text().startswith(ENGLISH[0])


def test_positions_in_json_count_blank_sentences(files):
    for code, text in (("en", ["", *ENGLISH]), ("de", [*GERMAN[:2], " ", *GERMAN[2:]])):
        record = {"id": "one", "lang": code, "sentences": text}
        (files / f"{code}.jsonl").write_text(json.dumps(record))
    words = ("--pairs", "ids", "--format", "groups")
    assert align(*words, source="en.jsonl", target="de.jsonl") == 0
    groups = ["[1]:[0]", "[2]:[1]", "[3]:[3, 4]", "[4]:[]", "[5]:[5]", "[6]:[6]"]
    assert without_costs((files / "out").read_text()) == [f"one\tone\t{g}" for g in groups]


def test_tsv_has_the_texts_of_translations_only(files):
    assert align() == 0
    rows = [line.split("\t") for line in (files / "out").read_text().splitlines()]
    assert [row[1] for row in rows] == [ENGLISH[i] for i in (0, 1, 2, 4, 5)]
    assert rows[2][2] == f"{GERMAN[2]} {GERMAN[3]}"


def test_json_lines_have_the_ids_of_documents(files):
    assert align(output="out.jsonl") == 0
    rows = [json.loads(line) for line in (files / "out.jsonl").read_text().splitlines()]
    assert [row["source"] for row in rows] == [ENGLISH[i] for i in (0, 1, 2, 4, 5)]
    assert {*rows[0]} == {"source", "target", "cost"} and 0 <= rows[0]["cost"] < 0.7
    assert align("--pairs", "ids", source="en.jsonl", target="de.jsonl", output="ids.jsonl") == 0
    row = json.loads((files / "ids.jsonl").read_text().splitlines()[0])
    assert (row["source_id"], row["target_id"], row["target"]) == ("one", "one", GERMAN[0])


def test_a_translation_memory_is_read_back(files):
    assert align("--format", "tmx", output="out.tmx") == 0  # of a.en and a.de
    reader = TmxReader("tmx:out.tmx", "out.tmx")
    rows = [(row.texts["en"], row.texts["de"]) for row in reader.read(("en", "de"))]
    wanted = [(ENGLISH[i], GERMAN[j]) for i, j in ((0, 0), (1, 1), (4, 4), (5, 5))]
    assert [*rows[:2], *rows[3:]] == wanted and len(rows) == 5


def test_documents_of_equal_ids_or_of_given_pairs(files, capsys):
    words = ("--pairs", "ids", "--format", "groups")
    assert align(*words, source="en.jsonl", target="de.jsonl") == 0
    assert without_costs((files / "out").read_text()) == [f"one\tone\t{g}" for g in GROUPS]
    (files / "pairs.tsv").write_text("1.2\ten-2\tde-2\n")
    words = ("--pairs", "pairs.tsv", "--format", "groups", "--overwrite")
    assert align(*words, source="en.jsonl", target="de.jsonl") == 0
    lines = without_costs((files / "out").read_text())
    assert lines == ["en-2\tde-2\t[0]:[0]", "en-2\tde-2\t[1]:[1]"]
    (files / "pairs.tsv").write_text("1.2\ten-2\tnone\n")
    assert align(*words, source="en.jsonl", target="de.jsonl") == 1
    assert "pairs.tsv:1: no target document has the id 'none'" in capsys.readouterr().err
    assert without_costs((files / "out").read_text()) == lines  # as it was


@pytest.mark.parametrize("kind", ["tsv", "tmx"])
def test_half_of_an_emoji_in_a_document_becomes_a_replacement_character(files, kind):
    for code, text in (("en", ENGLISH), ("de", GERMAN)):
        halves = ["\ud83d" + text[i] for i in (0, 5)]  # JSON escapes it
        records = [{"id": "1", "lang": code, "sentences": [halves[0], text[1]]}]
        records += [{"id": "2\udc00", "lang": code, "text": halves[1], "url": "\udc00"}]
        (files / f"{code}.jsonl").write_text("".join(f"{json.dumps(r)}\n" for r in records))
    words = ("--pairs", "ids", "--format", kind)
    assert align(*words, source="en.jsonl", target="de.jsonl") == 0
    written = (files / "out").read_text(encoding="utf-8")
    assert "\ufffd" + ENGLISH[0] in written and "\ufffd" + GERMAN[5] in written


@pytest.mark.parametrize(
    "words, message",
    [
        (["--max-sentences", "1"], "--max-sentences=1 must be at least 2"),
        (["--merging", "nan"], "error: --merging must be a number; got nan"),
        (["--pairs", "a.en"], "--pairs: --source must be JSON lines"),
        (["--languages", "en"], "--languages: must be two codes"),
    ],
)
def test_wrong_use(files, capsys, words, message):
    assert align(*words) == 2
    assert message in capsys.readouterr().err
    assert not (files / "out").exists()


def test_json_lines_of_another_name_are_not_taken_for_text(files, capsys):
    (files / "en.jsonl").rename(files / "en.json")
    assert align(source="en.json") == 2
    assert "en.json: looks like JSON lines; write them to a .jsonl" in capsys.readouterr().err
