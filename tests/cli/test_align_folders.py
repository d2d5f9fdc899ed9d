"""From two folders of documents to a translation memory, with the encoder in the package."""

import gzip
import random
import re
from xml.etree import ElementTree

import pytest

from tests.docs.pages import ROOT
from xling_jax.align.pair_files import Layout, ScoredPair, write_pairs
from xling_jax.cli.main import main
from xling_jax.corpora.readers.xml_units import TmxReader

LANGUAGES = ("de", "en")
LENGTH = 4


def read_pairs():
    lines = (ROOT / "configs/quickstart_sentences.tsv").read_text("utf-8").splitlines()
    rows = [line.split("\t") for line in lines]
    columns = [rows[0].index(code) for code in LANGUAGES]
    pairs = [tuple(row[c] for c in columns) for row in sorted(rows[1:])]
    return [pair for pair in pairs if all(text.endswith(".") for text in pair)]


PAIRS = read_pairs()
DOCUMENTS = [PAIRS[i : i + LENGTH] for i in range(0, len(PAIRS) - LENGTH + 1, LENGTH)]


@pytest.fixture
def folders(tmp_path, monkeypatch, caplog):
    """`de` and `en`: a file a document, one compressed, one in a folder inside; other names."""
    caplog.set_level("INFO")
    monkeypatch.chdir(tmp_path)
    names = random.Random(0).sample(range(100), len(DOCUMENTS))
    for side, code in enumerate(LANGUAGES):
        (tmp_path / code / "more").mkdir(parents=True)
        (tmp_path / code / ".hidden").write_bytes(b"\xff")
        for i, document in enumerate(DOCUMENTS):
            # Running text: sentences must be found.
            text = " ".join(pair[side] for pair in document) + "\n"
            name = f"{names[i] if side else i}.txt"
            if i == 1:
                (tmp_path / code / f"{name}.gz").write_bytes(gzip.compress(text.encode()))
            else:
                (tmp_path / code / ("more" if i == 2 else "") / name).write_text(text, "utf-8")
    return tmp_path


def align(*words, output="out.tmx", command="align-sentences"):
    sides = {"--source": "de", "--target": "en"}
    sides = [word for name, side in sides.items() if name not in words for word in (name, side)]
    return main([command, "--model", "mini", *sides, "--output", output, *words])


def units(path="out.tmx"):
    reader = TmxReader(f"tmx:{path}", path)
    return [tuple(row.texts[code] for code in LANGUAGES) for row in reader.read(LANGUAGES)]


def test_one_command_writes_a_translation_memory(folders, caplog):
    assert align() == 0
    found = units()
    wanted = {pair for document in DOCUMENTS for pair in document}
    assert len(wanted.intersection(found)) >= 0.9 * len(wanted) and len(found) <= len(wanted)
    assert f"{len(DOCUMENTS)} pairs of {len(DOCUMENTS)} source and" in caplog.text
    assert f"out.tmx: {len(found)} translations; dropped: " in caplog.text
    assert not list(folders.glob(".*"))
    root = ElementTree.parse("out.tmx").getroot()
    assert root.find("header").get("srclang") == "de"
    props = {prop.get("type"): prop.text for prop in root.find("body/tu")}
    assert props["x-source-document"] == "0" and float(props["x-cost"]) < 0.7


def test_documents_without_sentences_to_align_are_left_out(folders, caplog):
    (folders / "de/alone.txt").write_text("Der Vulkan ist seit 1902 erloschen. Niemand weiß warum.")
    (folders / "en/alone.txt").write_text(
        "Click on Save to keep your settings. Restart the server."
    )
    assert align() == 0
    assert not any("Vulkan" in source for source, _ in units())
    assert "document pairs left out for a cost above 0.6: 1" in caplog.text
    assert f"{len(DOCUMENTS)} document pairs; " in caplog.text


def test_equal_names_of_one_sentence_a_line(folders, caplog):
    for code, text in (("de", "Ja. Nein.\n\nWo ist der Bahnhof?\n"), ("en", "Yes. No.\nWhere?\n")):
        (folders / code / f"same.{code}.txt").write_text(text, "utf-8")
    words = ("--pairs", "ids", "--splitter", "lines", "--format", "groups")
    assert align(*words, output="groups") == 0
    lines = [line.split("\t") for line in (folders / "groups").read_text().splitlines()]
    rows = [row for row in lines if row[0] == "same"]
    assert {row[1] for row in rows} == {"same"}
    numbers = [re.findall(r"\d+", row[2].rpartition(":")[0].partition(":")[0]) for row in rows]
    assert [n for row in numbers for n in row] == ["0", "2"]  # lines, the blank one included


def test_what_the_rules_drop_is_counted(folders, caplog):
    (folders / "pairs.tsv").write_text("a\ta\nb\tb\n")
    german = ["Wo ist der Bahnhof?", "Der Ausschuss hat abgelehnt."]
    german += ["Copyright ACME", "Es schneit."]
    english = ["Where is the station?", "The committee rejected it."]
    english += ["Copyright  acme", "It is snowing."]
    for name in ("a", "b"):  # the second repeats the first
        (folders / f"de/{name}.txt").write_text("\n".join(german))
        (folders / f"en/{name}.txt").write_text("\n".join(english))
    words = ("--pairs", "pairs.tsv", "--splitter", "lines")
    assert align(*words) == 0
    assert align(*words, "--keep-copies", "--keep-duplicates", output="all.tmx") == 0
    assert len(units()) < len(units("all.tmx"))
    assert "2 copy, " in caplog.text and " duplicate" in caplog.text
    assert not any("ACME" in source for source, _ in units())


@pytest.mark.parametrize(
    "words, message",
    [
        (["--format", "groups", "--max-cost", "1"], "--format groups: covers all sentences"),
        (["--source", "here"], "here: give --languages, such as --languages de,en"),
        (["--target", "./de/"], "are the same folder; give each language its own"),
        (["--source", "de/0.txt"], "both must be text files, or both documents"),
    ],
)
def test_wrong_use(folders, capsys, words, message):
    (folders / "here").mkdir()
    (folders / "here/a.txt").write_text("Text.")
    assert align(*words) == 2
    assert message in capsys.readouterr().err
    assert not (folders / "out.tmx").exists()


@pytest.mark.parametrize(
    "name, content, message",
    [
        ("de/0.txt.gz", gzip.compress(b"Text.", mtime=0), ": the same document, '0', as de/0.txt"),
        ("de/x.doc", b"a\n\xff", ":2: text must be UTF-8"),
        ("de/x.gz", b"text", ": damaged compressed file"),
        ("fr", None, ": must hold text files, one document each; found none"),
    ],
)
def test_files_that_cannot_be_read_are_named(folders, capsys, name, content, message):
    if content is None:
        (folders / name).mkdir()
    else:
        (folders / name).write_bytes(content)
    assert align(*(["--target", name] if content is None else [])) == 1
    assert f"{name}{message}" in capsys.readouterr().err


def test_any_text_and_code_makes_valid_xml(tmp_path):
    texts = ['a <b> & "c" ]]> \x00\x1f\ufffe\ud800 d', "x\ny"]
    pairs = [ScoredPair(0.5, *texts, ("<1>", "2&"))]
    write_pairs(f"{tmp_path}/x.tmx", pairs, Layout("cost", ("zh_Hans", "pt_BR")))
    root = ElementTree.parse(tmp_path / "x.tmx").getroot()
    xml_lang = "{http://www.w3.org/XML/1998/namespace}lang"
    assert [tuv.get(xml_lang) for tuv in root.iter("tuv")] == ["zh-Hans", "pt-BR"]
    assert [seg.text for seg in root.iter("seg")] == ['a <b> & "c" ]]>      d', "x\ny"]
    assert [prop.text for prop in root.iter("prop")] == ["<1>", "2&", "0.500000"]
