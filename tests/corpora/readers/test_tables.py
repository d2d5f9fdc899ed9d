"""Tables of other tools: CSV, JSON lines, Parquet, data sets of Hugging Face; their columns."""

import json

import pytest

from xling_jax.corpora.specs import open_corpus, read_corpus

ROWS = [{"de": "Er rief „ja“.", "en": 'He said "yes", twice.'}, {"de": "Zwei\nZeilen", "en": "Two"}]


def texts(spec, languages=("de", "en")):
    return [row.problem or row.texts for row in read_corpus(str(spec), languages)]


def write(path, content):
    path.write_text(content, encoding="utf-8")
    return path


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_csv_cells_may_be_in_quotation_marks(tmp_path, delimiter):
    lines = ["id,en,de", '1,"He said ""yes"", twice.",Er rief „ja“.', '2,Two,"Zwei', 'Zeilen"']
    content = "\n".join(lines) + "\n3,one too many,x,y\n\n"
    path = write(tmp_path / "a.csv", content.replace(",", delimiter))
    if delimiter != ",":  # inside of a cell
        path = write(path, path.read_text().replace(f'yes""{delimiter}', 'yes"",'))
    assert texts(path) == [*ROWS, "wrong_row", {}]
    assert [row.line for row in read_corpus(str(path), ("de", "en"))] == [2, 3, 5, 6]


def test_a_quotation_mark_that_is_text_costs_its_row_alone(tmp_path):
    lines = ['"Ja, er,Yes, he', "nein,no", '"Gut, so",Good', '"Aber" nein,but no', 'a,"b', "c,d"]
    path = write(tmp_path / "a.csv", "\n".join(["de,en", *lines]) + "\n")
    pairs = [("nein", "no"), ("Gut, so", "Good"), ("Aber nein", "but no"), ("a", "b"), ("c", "d")]
    assert texts(path) == ["wrong_row", *({"de": de, "en": en} for de, en in pairs)]
    rows = list(read_corpus(str(path), ("de", "en")))
    assert [row.line for row in rows] == [2, 3, 4, 5, 6, 7]
    assert rows[0].detail.endswith("if quotation marks are text, add ?quotes=no to the path")
    assert texts(f"{path}?quotes=no")[3] == {"de": '"Aber" nein', "en": "but no"}
    long = '"' + "x" * 200_000
    assert texts(write(path, f"de,en\n{long},y\nnein,no\n")) == ["wrong_row", texts(path)[1]]


def test_a_broken_line_inside_of_a_cell_breaks_its_row(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(b'de,en\n\xff,x\n"Drei\n\xff\nZeilen",three\n\xff\nnein,no\n')
    assert texts(path) == [*["broken_utf8"] * 3, {"de": "nein", "en": "no"}]
    assert [row.line for row in read_corpus(str(path), ("de", "en"))] == [2, 3, 6, 7]


def test_the_advice_for_a_table_without_header_leads_out(tmp_path):
    path = write(tmp_path / "a.csv", "Ja,Yes\nNein,No\n")
    with pytest.raises(ValueError) as error:
        texts(path)
    advice = f"{path}?columns=de,en"
    assert f"without a header, name all columns in order, {advice};" in str(error.value)
    assert texts(advice) == [{"de": "Ja", "en": "Yes"}, {"de": "Nein", "en": "No"}]


def test_tsv_that_a_csv_writer_wrote_is_recognized(tmp_path, caplog):
    pandas = pytest.importorskip("pandas")
    frame, path = pandas.DataFrame(ROWS), tmp_path / "a.tsv"
    for quoting in (1, 0):  # all, what needs it
        frame.to_csv(path, sep="\t", index=False, quoting=quoting)
        assert texts(path) == ROWS
    assert "?quotes=no" in caplog.text
    assert texts(f"{path}?quotes=no")[0] == {
        key: '"' + text.replace('"', '""') + '"' for key, text in ROWS[0].items()
    } | {"de": ROWS[0]["de"]}
    literal = 'de\ten\n"Ja."\t"Yes."\nEr: "Ja"\tHe: "yes"\n"Er: ""Ja"""\tx\n'
    assert texts(write(path, literal))[2]["de"] == '"Er: ""Ja"""'


def test_columns_name_those_of_a_file_without_header_or_choose_others(tmp_path):
    path = write(tmp_path / "a.tsv", "0.9\tja\tyes\n0.8\tnein\tno\n")
    expected = [{"de": "ja", "en": "yes"}, {"de": "nein", "en": "no"}]
    assert texts(f"tsv:{path}?columns=score,de,en") == expected
    assert open_corpus(f"{path}?columns=score,de,en").languages() == ("de", "en")
    with pytest.raises(ValueError, match=r"a\.tsv:1: a header must name .* de, en; .* found 3$"):
        texts(f"{path}?columns=de,en")
    path = write(tmp_path / "b.tsv", "src\ttgt\nja\tyes\nnein\tno\n")
    assert texts(f"{path}?columns=de:src,en:tgt") == expected
    assert texts(f"{path}?columns=src:de,tgt:en") == expected
    with pytest.raises(ValueError, match="has no column 'text'; found src, tgt; correct"):
        texts(f"{path}?columns=de:text,en:tgt")
    with pytest.raises(ValueError, match="option='column' must be one of columns, quotes"):
        texts(f"{path}?column=de")


@pytest.mark.parametrize(
    "names",
    [("de", "en"), ("deu_Latn", "English"), ("translation.de", "translation.en")]
    + [("non_english", "english")],
)
def test_columns_are_found_by_codes_names_and_fields(tmp_path, names):
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    outer, _, _ = names[0].rpartition(".")
    inner = [name.rpartition(".")[2] for name in names]
    records = [dict(zip(inner, (row["de"], row["en"]))) for row in [*ROWS, {"de": None, "en": ""}]]
    records = [{"id": i} | ({outer: r} if outer else r) for i, r in enumerate(records)]
    parquet.write_table(pa.Table.from_pylist(records), tmp_path / "a.parquet")
    lines = "".join(json.dumps(record) + "\n" for record in records)
    write(tmp_path / "a.jsonl", lines)
    for name in ("a.parquet", "a.jsonl"):
        assert texts(tmp_path / name) == [*ROWS, {}]
    assert texts(f"{tmp_path}/a.parquet?columns=de:{names[0]},en:{names[1]}")[0] == ROWS[0]
    known = {"non_english": ("en",), "deu_Latn": ("deu_Latn", "en")}.get(names[0], ("de", "en"))
    assert open_corpus(f"{tmp_path}/a.jsonl").languages() == known


def test_broken_lines_of_json_are_problems(tmp_path):
    good = '{"de": "ja", "en": "yes"}\n'
    path = write(tmp_path / "a.jsonl", good + '["ja"]\n{"de": 1}\n{"de": \n\n' + good)
    yes = {"de": "ja", "en": "yes"}
    assert texts(path) == [yes, "wrong_row", "wrong_row", "wrong_row", {}, yes]
    other = '{"translation": {"de": "ja", "en": "yes"}}\n{"en": "no"}\n'
    assert texts(write(path, good + other)) == [yes, "wrong_row", {"en": "no"}]
    (_, row, _) = read_corpus(str(path), ("de", "en"))
    assert row.detail == "must have de or en; found translation.de, translation.en"
    with pytest.raises(ValueError, match=r"a\.jsonl:1: a line must be a JSON obj.* jq -c"):
        texts(write(path, f"[{good}]"))
    with pytest.raises(ValueError, match=r"a\.jsonl:1: not valid JSON.*must be in one line"):
        texts(write(path, '{\n"de": "ja"}'))


def test_fields_of_json_that_the_first_object_lacks_are_columns(tmp_path):
    lines = ['{"en": "yes"}', "[]", '{"en": "no", "fr": "non"}', '{"de": "gut", "en": "good"}']
    path = write(tmp_path / "a.jsonl", "\n".join(lines))
    rows = [{"en": "yes"}, "wrong_row", {"en": "no", "fr": "non"}, {"de": "gut", "en": "good"}]
    assert texts(path, ("de", "en", "fr")) == rows
    assert texts(f"{path}?columns=de,en")[-1] == rows[-1]


def test_parquet_that_is_none_or_holds_numbers_is_refused(tmp_path):
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path = write(tmp_path / "a.parquet", "version https://git-lfs.github.com/spec/v1\noid x\n")
    with pytest.raises(ValueError, match=r"a\.parquet: is a git-lfs pointer.* git lfs pull"):
        texts(path)
    with pytest.raises(ValueError, match=r"a\.parquet: cannot be read: .*fetch it again"):
        texts(write(path, "PAR1 and no more"))
    parquet.write_table(pa.table({"de": ["ja"], "en": [1]}), path)
    with pytest.raises(ValueError, match=r"a\.parquet:1: a text must be a string; found 1"):
        texts(path)
    with pytest.raises(ValueError, match="its columns must name at least two of de, fr; found"):
        texts(path, ("de", "fr"))


@pytest.mark.slow  # imports torch and more
def test_data_sets_of_hugging_face_are_read_from_directories(tmp_path):
    datasets = pytest.importorskip("datasets")
    found = datasets.Dataset.from_list([{"translation": row} for row in ROWS])
    found.save_to_disk(tmp_path / "flat")
    datasets.DatasetDict(train=found, test=found.select([1])).save_to_disk(tmp_path / "splits")
    found.to_parquet(tmp_path / "files" / "train-00000-of-00001.parquet")
    for name in ("flat", "splits", "files"):
        reader = open_corpus(f"hf:{tmp_path}/{name}")
        assert [row.texts for row in reader.rows(("en", "de"))] == ROWS
        assert reader.languages() == ("de", "en") and reader.files()
    assert texts(f"hf:{tmp_path}/splits?split=test") == ROWS[1:]
    with pytest.raises(ValueError, match="split='dev' must be one of train, test"):
        texts(f"hf:{tmp_path}/splits?split=dev")


def test_a_reader_from_outside_is_named_by_module_and_class(tmp_path, monkeypatch):
    write(
        tmp_path / "alternating.py",
        "from xling_jax.corpora.readers.base import Reader, Row\n"
        "class Lines(Reader):\n"
        "    def read(self, languages):\n"
        "        for path in self.files():\n"
        "            with open(path) as file:\n"
        "                for number, line in enumerate(file, 1):\n"
        "                    yield Row(dict(zip(languages, line.split())), path, number)\n",
    )
    monkeypatch.syspath_prepend(tmp_path)
    write(tmp_path / "a.txt", "ja yes\n")
    spec = f"alternating:Lines:{tmp_path}/*.txt"
    assert texts(spec) == [{"de": "ja", "en": "yes"}]
    assert open_corpus(spec).at(lambda path: path).name == spec
    with pytest.raises(ValueError, match="no attribute 'Line'; a kind of your own is MODULE:CLASS"):
        texts(f"alternating:Line:{tmp_path}/*.txt")
    with pytest.raises(ValueError, match="kind os:path: must be a subclass of"):
        texts("os:path:x")


def test_files_in_other_languages_are_logged_in_one_line(tmp_path, caplog):
    caplog.set_level("INFO")
    for i in range(6):
        write(tmp_path / f"{i}.tsv", ("pl\ten" if i else "deu_Latn\ten") + "\nJa\tYes\n")
    write(tmp_path / "6.tsv", "deu_Latn\ten\nNein\tNo\n")
    spec = f"tsv:{tmp_path}/*.tsv"
    assert texts(spec) == [{"de": "Ja", "en": "Yes"}, {"de": "Nein", "en": "No"}]
    skipped, renamed = caplog.messages
    named = ", ".join(f"{tmp_path}/{i}.tsv (pl, en)" for i in (1, 2, 3))
    assert skipped == f"{spec}: 5 of 7 files skipped, with fewer than two of de, en: {named}, …"
    assert renamed == f"{spec}: column deu_Latn is read as de"
