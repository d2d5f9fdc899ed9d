"""MLDoc from small NewsML files: text, topics, lists, what is refused."""

import pytest

from xling_jax.eval import mldoc
from xling_jax.eval.classification_data import load_classification_data

TOPICS = ("CCAT", "ECAT", "GCAT", "MCAT")


def newsml(paragraphs, topics=("C15", "CCAT"), encoding="utf-8"):
    """A news item as Reuters writes it; other classes of codes are no topics."""
    codes = "".join(
        f'<code code="{code}"><editdetail attribution="Reuters"/></code>' for code in topics
    )
    body = "\n".join(f"<p>{paragraph}</p>" for paragraph in paragraphs)
    return (
        f'<?xml version="1.0" encoding="{encoding}" ?>\n'
        f'<newsitem itemid="1" date="1997-06-17"><title>Not text</title><text>\n{body}\n</text>'
        f'<metadata><codes class="bip:countries:1.0"><code code="GCAT"/></codes>'
        f'<codes class="bip:topics:1.0">{codes}</codes></metadata></newsitem>'
    ).encode(encoding)


def write(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


@pytest.fixture
def corpus(tmp_path):
    for number in range(6):
        item = newsml([f"English {number} .", "More ."], ["X", TOPICS[number % 4]])
        write(tmp_path / f"rcv1/1997061{number % 2}/{number}newsML.xml", item)
    for number in range(3):
        for folder in ("REUTDE1", "REUTDE2"):
            item = newsml([f"Größe {folder} {number}"])
            write(tmp_path / f"rcv2/german/{folder}/{number}.xml", item)
        item = newsml([f"Été {number}"], ["MCAT"], "iso-8859-1")
        write(tmp_path / f"rcv2/french/REUTFR11/{number}.xml", item)
    lists = {
        "english.train.1000": "19970610-0newsML\n19970611-3newsML\n\n19970610-2newsML\n",
        "english.dev": "19970611-1newsML\n",
        "english.test": "19970611-5newsML\n19970610-4newsML\n",
        "german.train.1000": "REUTDE1-0\nREUTDE2-0\n",
        "german.dev": "REUTDE1-1\n",
        "german.test": "REUTDE2-2\n",
        "french.train.1000": "REUTFR11-0\n",
        "french.dev": "REUTFR11-1\n",
        "french.test": "REUTFR11-2\n",
        "italian.dev": "REUTIT1-1\n",  # Without its other lists: no language of this copy.
    }
    for name, content in lists.items():
        write(tmp_path / "lists" / name, content.encode())
    return tmp_path


def build(corpus, **settings):
    roots = [corpus / "rcv1", corpus / "rcv2"]
    return mldoc.build_mldoc(roots, corpus / "lists", corpus / "out", **settings)


def test_documents_are_written_in_the_order_of_the_lists(corpus):
    counts = build(corpus)
    assert counts["train.en.tsv"] == 3 and counts["test.de.tsv"] == 1 and len(counts) == 9
    written = {path.name: path.read_text("utf-8") for path in (corpus / "out").iterdir()}
    assert set(written) == set(counts)
    assert written["train.en.tsv"] == (
        "C\tEnglish 0 . More .\nM\tEnglish 3 . More .\nG\tEnglish 2 . More .\n"
    )
    assert written["train.de.tsv"] == "C\tGröße REUTDE1 0\nC\tGröße REUTDE2 0\n"
    assert written["dev.fr.tsv"] == "M\tÉté 1\n"
    data = load_classification_data(corpus / "out")
    assert data.splits["test"]["en"].labels == ["E", "C"] and [*data.splits["dev"]] == [
        *("de", "en", "fr")
    ]


def test_text_is_cleaned_as_laser_cleans_it():
    item = newsml(
        [
            "Ford Motor Co . and Acme Inc . rose.",
            "A\ttab\nand a <b>tag</b>",
            "(c) Reuters Limited 1997.",
        ]
    )
    assert mldoc.read_newsml(item, "x") == (
        "C",
        "Ford Motor Co. and Acme Inc. rose. A tab and a tag",
    )
    assert "1897" in mldoc.read_newsml(newsml(["(c) Reuters Limited 1897."]), "x")[1]
    assert mldoc.read_newsml(newsml([]), "x") == ("C", "")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (newsml(["a"], ["C15"]), r"x: must have one topic of .* found \['C15'\]"),
        (newsml(["a"], ["CCAT", "MCAT"]), r"found \['CCAT', 'MCAT'\]"),
        (b"<newsitem><p>", "x: must be NewsML; no element found"),
        (b"<newsitem>\xff</newsitem>", "x: must be NewsML; not well-formed"),
    ],
)
def test_items_without_one_topic_or_broken_are_refused(content, message):
    with pytest.raises(ValueError, match=message):
        mldoc.read_newsml(content, "x")


def test_a_missing_document_is_named_and_nothing_is_written(corpus):
    (corpus / "rcv1/19970611/5newsML.xml").unlink()
    with pytest.raises(ValueError, match="test.en.tsv: 1 of 2 documents .* 19970611-5newsML"):
        build(corpus)
    assert not (corpus / "out").exists()


def test_a_broken_document_leaves_the_old_output(corpus):
    build(corpus, languages=["fr"])
    write(corpus / "rcv1/19970611/5newsML.xml", b"<oh")
    with pytest.raises(ValueError, match="5newsML.xml: must be NewsML"):
        build(corpus)
    assert {path.name.split(".")[1] for path in (corpus / "out").iterdir()} == {"fr"}
    assert {path.name for path in corpus.iterdir()} == {"rcv1", "rcv2", "lists", "out"}


def test_lists_that_are_not_there_or_broken_are_refused(corpus):
    for code, message in (("nl", "no nl; it has en, de"), ("it", "italian.train.1000: no such")):
        with pytest.raises(ValueError, match=message):
            build(corpus, languages=[code])
    write(corpus / "lists/english.dev", b"19970611-1newsML\n../../secret\n")
    with pytest.raises(ValueError, match=r"english.dev:2: must be FOLDER-NAME"):
        build(corpus)


def test_the_command_builds_and_refuses(corpus, capsys):
    each = ["--rcv", str(corpus / "rcv1"), "--rcv", str(corpus / "rcv2")]
    words = [*each, "--output", str(corpus / "out")]
    words += ["--indices", str(corpus / "lists")]
    mldoc.main([*words, "--languages", "de"])
    assert (corpus / "out/train.de.tsv").exists()
    with pytest.raises(SystemExit):
        mldoc.main(words)
    assert "out: exists" in capsys.readouterr().err
    (corpus / "rcv2/french/REUTFR11/0.xml").unlink()
    with pytest.raises(SystemExit, match="error: train.fr.tsv: 1 of 1 documents are not below"):
        mldoc.main([*words, "--overwrite"])
