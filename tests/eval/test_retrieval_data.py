"""Reading retrieval data: layouts, aliases, and errors that name the place."""

import argparse
import gzip

import pytest

from xling_jax.cli.arguments import check_input
from xling_jax.eval import retrieval_data
from xling_jax.eval.retrieval import Retrieval
from xling_jax.files.lines import metric_name
from xling_jax.options import OptionError


def write(path, text):
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "wt", encoding="utf-8") as stream:
        stream.write(text)
    return path


def test_n_way_file_with_row_names_and_gaps(tmp_path):
    path = write(tmp_path / "pud.dev.tsv.gz", "id\ten\tde\nn1\tone\teins\nn2\ttwo\t \n")
    data = retrieval_data.load_retrieval_data(path)
    assert (
        data.name == "pud_dev"
        and data.languages == ("en", "de")
        and data.description["num_rows"] == 2
    )
    assert data.parts[0].texts == {"en": ["one", "two"], "de": ["eins", ""]}


def test_languages_choose_and_order_columns_by_code_or_alias(tmp_path):
    path = write(tmp_path / "a.tsv", "deu\teng\tfr\nx\ty\tz\n")
    data = retrieval_data.load_retrieval_data(path, ["en", "de", "it"])
    assert data.parts[0].texts == {"en": ["y"], "de": ["x"]}
    assert data.languages == ("en", "de")
    path = write(tmp_path / "b.tsv", "id\ten\tde\nsatu\tone\teins\n")
    data = retrieval_data.load_retrieval_data(path, ["id", "en"])
    assert data.parts[0].texts == {"id": ["satu"], "en": ["one"]}


def test_directory_of_pairs_leaves_out_files_without_the_languages(tmp_path):
    write(tmp_path / "deu-eng.tsv", "deu\teng\na\tb\n")
    write(tmp_path / "fra-eng.tsv.gz", "fra\teng\nc\td\n")
    write(tmp_path / "README.md", "not data")
    assert retrieval_data.load_retrieval_data(tmp_path).languages == ("deu", "eng", "fra")
    assert retrieval_data.load_retrieval_data(tmp_path, ["en", "de"]).languages == ("en", "de")


def test_tatoeba_layout_of_laser(tmp_path):
    write(tmp_path / "tatoeba.deu-eng.deu", "a \n \nb\n")
    write(tmp_path / "tatoeba.deu-eng.eng", "c\nd\n\te\n")
    (part,) = retrieval_data.load_retrieval_data(tmp_path).parts
    assert part.texts == {"deu": ["a", "", "b"], "eng": ["c", "d", "e"]}
    write(tmp_path / "tatoeba.fra-eng.fra.gz", "x\n")
    write(tmp_path / "tatoeba.fra-eng.eng.gz", "y\n")
    _, part = retrieval_data.load_retrieval_data(tmp_path).parts
    assert part.texts == {"fra": ["x"], "eng": ["y"]}
    write(tmp_path / "tatoeba.zh_Hans-en.zh_Hans", "z\n")
    write(tmp_path / "tatoeba.zh_Hans-en.en", "y\n")
    assert "zh_Hans" in retrieval_data.load_retrieval_data(tmp_path).parts[-1].texts
    for code in ("zh_Hans", "en"):
        write(tmp_path / f"tatoeba.zh_Hans-en.{code}", "")
    with pytest.raises(ValueError, match=r"zh_Hans: the file is empty"):
        retrieval_data.load_retrieval_data(tmp_path)
    write(tmp_path / "tatoeba.deu-eng.eng", "c\n")
    with pytest.raises(ValueError, match="same number of lines; .*deu has 3, .*eng has 1;"):
        retrieval_data.load_retrieval_data(tmp_path)


@pytest.mark.parametrize("name", ["corpus", "corpus.de-en"])
def test_any_training_corpus_serves(tmp_path, name):
    write(tmp_path / f"{name}.de", "a\n\nb\n")
    write(tmp_path / f"{name}.en", "c\nd\ne\n")
    check_input(argparse.Namespace(data=[f"moses:{tmp_path}/{name}"]), "data")
    data = retrieval_data.load_retrieval_data(f"moses:{tmp_path}/{name}", ["en", "de"])
    assert data.name == metric_name(name)
    assert data.parts[0].texts == {"en": ["c", "d", "e"], "de": ["a", "", "b"]}
    write(tmp_path / "c.tsv", "de\ten\na\tb\n")
    (part,) = retrieval_data.load_retrieval_data(f"tsv:{tmp_path}/c.tsv", ["en", "de"]).parts
    assert part.texts == {"en": ["b"], "de": ["a"]}


def test_tables_and_memories_are_evaluated_as_they_are(tmp_path):
    write(tmp_path / "a.csv", 'English;de\n"one; first";eins\n')
    write(tmp_path / "b.jsonl", '{"translation": {"en": "two", "fr": "deux"}}\n')
    tuv = '<tuv xml:lang="{}"><seg>{}</seg></tuv>'.format
    unit = f"<tu>{tuv('en-US', 'three')}{tuv('it', 'tre')}</tu>"
    parts = retrieval_data.load_retrieval_data(tmp_path).parts
    assert [part.texts for part in parts] == [
        {"en": ["one; first"], "de": ["eins"]},
        {"en": ["two"], "fr": ["deux"]},
    ]
    memory = write(tmp_path / "c.tmx", f"<tmx><body>{unit}</body></tmx>")
    with pytest.raises(ValueError, match=r"c\.tmx: name the languages to read from it"):
        retrieval_data.load_retrieval_data(memory)
    (part,) = retrieval_data.load_retrieval_data(memory, ["en", "it"]).parts
    assert part.texts == {"en": ["three"], "it": ["tre"]}
    spec = str(write(tmp_path / "d.tsv", "x y\tz\n")) + "?columns=de,en"
    check_input(argparse.Namespace(data=[spec]), "data")
    data = retrieval_data.load_retrieval_data(spec)
    assert data.name == "d" and data.parts[0].texts == {"de": ["x y"], "en": ["z"]}


def test_fingerprint_follows_texts_not_files(tmp_path):
    text = "en\tde\none\teins\n"
    plain = retrieval_data.load_retrieval_data(write(tmp_path / "a.tsv", text))
    packed = retrieval_data.load_retrieval_data(write(tmp_path / "b.tsv.gz", text))
    other = retrieval_data.load_retrieval_data(write(tmp_path / "c.tsv", text + "two\tzwei\n"))
    hashes = [one.description["sha256"] for one in (plain, packed, other)]
    assert hashes[0] == hashes[1] != hashes[2]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", r"a\.tsv:1: the first line must name the columns"),
        (b"en\tde\n", "no row holds text in en or de"),
        (b"en\tHello there\nx\ty\n", "found en; the first line of a table must name them, such"),
        (b"en\tde\nx\ty\nx\n", r"a\.tsv:3: a row must have 2 cells.* found 1"),
        (b"en\tde\nx\ty\n\xff\ty\n", r"a\.tsv:3: text must be UTF-8"),
    ],
)
def test_broken_files_are_refused_with_their_line(tmp_path, content, message):
    (tmp_path / "a.tsv").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        retrieval_data.load_retrieval_data(tmp_path / "a.tsv")


def test_a_pair_in_two_files_is_refused(tmp_path):
    write(tmp_path / "a.tsv", "en\tde\nx\ty\n")
    write(tmp_path / "b.tsv", "de\ten\tfr\nx\ty\tz\n")
    with pytest.raises(ValueError, match=r"must be in one file; .*a\.tsv and .*b\.tsv"):
        retrieval_data.load_retrieval_data(tmp_path)


def test_what_is_not_there_is_named(tmp_path):
    with pytest.raises(OSError, match=r"missing\.tsv"):
        retrieval_data.load_retrieval_data(tmp_path / "missing.tsv")
    with pytest.raises(ValueError, match=r"must hold \.tsv files"):
        retrieval_data.load_retrieval_data(tmp_path)
    with pytest.raises(ValueError, match="or KIND:WHERE; separate the columns by tabs"):
        retrieval_data.load_retrieval_data(tmp_path / "corpus.de")
    path = write(tmp_path / "a.tsv", "en\tde\nx\ty\n")
    with pytest.raises(ValueError, match="two languages; asked for fr, it; found en, de$"):
        retrieval_data.load_retrieval_data(path, ["fr", "it"])


def test_a_language_that_no_file_has_is_named_with_the_files_and_what_they_have(tmp_path):
    paths = [str(write(tmp_path / f"{code}.tsv", f"en\t{code}\nx\ty\n")) for code in ("de", "fr")]
    sets = Retrieval().read(paths, ["en", "fr", "de"])
    assert [one.languages for one in sets] == [("en", "de"), ("en", "fr")]
    with pytest.raises(OptionError) as error:
        Retrieval().read(paths[:1], ["en", "de", "it"])
    message = f"--languages: no text in 'it' in {paths[0]}; there is some in en, de"
    assert str(error.value) == message


def test_distractor_files_are_named_by_language(tmp_path):
    first = write(tmp_path / "news.deu.txt.gz", "a\n\nb\n")
    second = write(tmp_path / "web.de.txt", " c \n \n")
    assert retrieval_data.load_distractors([first, second], ["en", "de"]) == {"de": ["a", "b", "c"]}
    with pytest.raises(ValueError, match=r"named NAME\.LANG\.txt"):
        retrieval_data.load_distractors([tmp_path / "news.txt"], ["en"])
    with pytest.raises(ValueError, match="fr"):
        retrieval_data.load_distractors([write(tmp_path / "n.fr.txt", "a\n")], ["en", "de"])
