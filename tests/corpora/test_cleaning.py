"""Cleaning: every reason for dropping a pair, and the published defaults."""

import unicodedata

import pytest

from xling_jax import options
from xling_jax.corpora.cleaning import REASONS, CleaningRules, RowCleaner
from xling_jax.corpora.held_out import file_hashes, held_out_files
from xling_jax.files.hashes import content_hash
from xling_jax.text.scripts import script_check
from xling_jax.text.splitting import count_words


def reason_of(first: str, second: str, pair=("de", "en"), held_out=None, **rules) -> str | None:
    cleaner = RowCleaner(CleaningRules(**rules), [pair], held_out)
    ((_, reason, _, _),) = cleaner.clean({pair[0]: first, pair[1]: second})
    return reason


@pytest.mark.parametrize(
    "first, second, rules, reason",
    [
        ("Guten Morgen.", "Good morning.", {}, None),
        ("", "Good morning.", {}, "empty"),
        ("\u200b \t", "Good morning.", {}, "empty"),
        ("1,5 (2)", "1.5 (2):", {}, "no_letters"),
        ("1,5 (2)", "1.5 (2):", {"require_letters": False}, None),
        ("1,5 (2)", "", {}, "empty"),
        ("wort " * 100, "word " * 100, {}, None),
        ("wort " * 101, "word " * 101, {}, "too_long"),
        ("w" * 1001, "word", {}, "too_long"),
        ("Guten Morgen.", "Доброе утро.", {}, "wrong_script"),
        ("Guten Morgen.", "Доброе утро.", {"min_script_share": 0.0}, None),
        ("Das α ist klein.", "The α is small.", {}, None),
        ("OK", "ok", {}, "identical"),
        ("OK", "ok", {"drop_identical": False}, None),
        ("STRASSE", "straße", {}, "identical"),
        ("eins zwei", "one two three", {}, None),
        ("eins zwei", "one two three four", {}, "length_ratio"),
        ("eins zwei", "one two three four", {"length_ratio_slack": 1}, None),
        ("eins zwei drei vier", "one " * 10, {"length_ratio_slack": 3}, "length_ratio"),
        ("Das Café ist klein", "The inn is small", {"alphabet_only": True}, "wrong_letters"),
        ("Das Haus ist klein", "The café is small", {"alphabet_only": True}, "wrong_letters"),
        ("Das Maß ist groß", "The Maß is big", {"alphabet_only": True}, None),
    ],
)
def test_reason(first, second, rules, reason):
    assert reason_of(first, second, **rules) == reason


@pytest.mark.parametrize(
    "language, text, is_wrong",
    [
        ("ru", "Функция mysql_real_escape_string", False),
        ("ru", "This sentence was never translated.", True),
        ("ru", "Windows XP Professional", False),
        ("ru", "Ελληνικά", True),
        ("ja", "日本語のテキスト", False),
        ("ko", "日本語のテキスト", True),
        ("sr", "Добар дан", False),
        ("sr", "Dobar dan, gospodine Petroviću", False),
        ("zh_Hant", "繁體中文", False),
        ("deu", "Доброе утро", True),
        ("hi_Latn", "mera naam kya hai bhai", False),
        ("hi_Latn", "Доброе утро", True),
        ("ar", "... 12 ...", False),
    ],
)
def test_script_check(language, text, is_wrong):
    assert script_check(language).is_wrong(text, count_words(text), 0.5) == is_wrong


def test_a_language_without_a_known_script_is_not_checked():
    assert script_check("qaa") is None
    assert reason_of("Доброе утро", "good morning", pair=("qaa", "qab")) is None


def test_a_row_gives_every_wanted_pair_it_holds():
    cleaner = RowCleaner(CleaningRules(), [("de", "en"), ("de", "fr"), ("en", "it")])
    row = {"de": "Guten  Tag", "en": "Good day", "fr": "Bonjour à vous tous ici"}
    assert [(pair, reason) for pair, reason, _, _ in cleaner.clean(row)] == [
        (("de", "en"), None),
        (("de", "fr"), "length_ratio"),
    ]
    assert cleaner.clean(row)[0][2].text == "Guten Tag"


def test_a_language_paired_with_itself_wants_rows_of_that_language_only():
    cleaner = RowCleaner(CleaningRules(), [("de", "de"), ("de", "en")])
    pairs = lambda row: [pair for pair, _, _, _ in cleaner.clean(row)]
    assert pairs({"de": "Guten Tag"}) == [("de", "de")]
    assert pairs({"de": "Guten Tag", "en": "Good day"}) == [("de", "en")]


@pytest.mark.parametrize("german, reason", [("Ja", "held_out"), ("", "empty")])
def test_held_out_text_comes_before_all_reasons_but_empty(german, reason):
    held_out = {content_hash("Hello"): "dev"}
    assert reason_of(german, "Hello", held_out=held_out, max_words=1) == reason


def test_held_out_files_of_every_layout(tmp_path):
    (tmp_path / "a.tsv").write_text("id\ten\tde\nn01\tOne text.\tEin Text.\n")
    (tmp_path / "b.jsonl").write_text(
        '{"id": "d1", "lang": "en", "sentences": ["First one.", "Second one."]}\n'
        '{"id": "d2", "text": "Line one\\nline two"}\n'
    )
    (tmp_path / "tatoeba.deu-eng.deu").write_text("Ein Satz\nfoo\n")
    found = set().union(*map(file_hashes, held_out_files([str(tmp_path)])))
    texts = ["one text", "Ein Text", "first ONE", "Second one", "Line one", "line two", "Ein Satz"]
    assert {content_hash(text) for text in texts} <= found
    assert not {content_hash(text) for text in ("n01", "d1", "en", "id")} & found


def test_held_out_tmx_and_columns_that_are_languages(tmp_path):
    units = "".join(
        f'<tuv xml:lang="{code}"><seg>{text}</seg></tuv>'
        for code, text in (("id", "Selamat pagi."), ("en", "Good morning."))
    )
    tmx = tmp_path / "dev.tmx"
    tmx.write_text(f'<tmx version="1.4"><header/><body><tu>{units}</tu></body></tmx>')
    tsv = tmp_path / "dev.tsv"
    tsv.write_text("id\ten\nSelamat pagi.\tGood morning.\n")
    expected = {content_hash("selamat pagi"), content_hash("good morning")}
    assert file_hashes(str(tmx), ("en", "id")) == file_hashes(tsv, ("en", "id")) == expected
    assert file_hashes(tsv, ("de", "en")) == {content_hash("good morning")}


def test_held_out_tables_count_with_all_their_texts(tmp_path):
    (tmp_path / "dev.csv").write_text('label,text\npos,"Good, really."\n')
    assert file_hashes(tmp_path / "dev.csv") == {content_hash("good really")}
    parquet = pytest.importorskip("pyarrow.parquet")
    rows = [{"score": 1.0, "translation": {"en": "Good", "de": "Gut"}, "id": "x"}]
    parquet.write_table(
        pytest.importorskip("pyarrow").Table.from_pylist(rows), tmp_path / "d.parquet"
    )
    assert file_hashes(tmp_path / "d.parquet") == {content_hash("gut"), content_hash("good")}
    (tmp_path / "picture.zip").write_bytes(b"PK\3\4")
    assert file_hashes(tmp_path / "picture.zip", strict=False) == set()


@pytest.mark.parametrize(
    ("name", "content", "texts"),
    [
        ("dev.tsv", "en\tde\n...\t!\n", ()),  # without letters and digits
        # Words in the first line are no header, and labels no text.
        ("dev.tsv", "hallo\thello\nDer Satz\tthe sentence\n",
         ("hallo", "hello", "der satz", "the sentence")),
        ("dev.tsv", "German\ten\nHallo\thello\n", ("hallo", "hello")),
        ("test.de.tsv", "politics\tDie Wahl.\nsport\tDas Spiel.\n", ("die wahl", "das spiel")),
        ("docs.jsonl", '{"text": "It rains. Nobody is here."}\n',
         ("It rains. Nobody is here.", "It rains", "nobody is here")),
    ],
)  # fmt: skip
def test_what_is_held_out_of_a_file(tmp_path, name, content, texts):
    (tmp_path / name).write_text(content)
    assert file_hashes(tmp_path / name) == {content_hash(text) for text in texts}


def test_held_out_catalogs_are_read_as_such(tmp_path):
    for name in ("de.po", "x.po"):
        (tmp_path / name).write_text('msgid "Open file"\nmsgstr "Datei öffnen"\n', "utf-8")
    expected = {content_hash("open file"), content_hash("datei öffnen")}
    assert file_hashes(tmp_path / "de.po", ("de", "en")) == expected
    with pytest.raises(ValueError, match=r"x\.po: needs catalogs for at least two of de, en"):
        file_hashes(tmp_path / "x.po", ("de", "en"))
    assert file_hashes(tmp_path / "x.po", ("de", "en"), strict=False) == set()


def test_held_out_directories_may_be_links(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "real/dev.tsv").write_text("en\tde\nyes\tja\n")
    (tmp_path / "sets").mkdir()
    (tmp_path / "sets/linked").symlink_to(tmp_path / "real")
    for name in ("again", "and_again"):  # back up, from where there would be no end
        (tmp_path / "sets" / name).symlink_to(tmp_path / "sets")
    assert held_out_files([str(tmp_path / "sets")]) == [f"{tmp_path}/sets/linked/dev.tsv"]


def test_held_out_text_is_compared_by_letters_with_their_marks_in_any_normal_form():
    for text in ("Việt Nam, đường", "বাংলা হয়", "में क़लम"):
        forms = {unicodedata.normalize(form, text) for form in ("NFC", "NFD")} | {text}
        assert len({content_hash(form) for form in forms}) == 1
        assert content_hash(text) == content_hash(f"  {text.upper()}! ")
    assert content_hash("में") != content_hash("मैं")
    assert content_hash("Straße 1.") == content_hash("STRASSE 1")
    assert content_hash("Ｆｕｌｌ ﬁg. ①") == content_hash("full FIG 1")  # as vocabularies see it


def test_held_out_files_that_do_not_exist_are_an_error(tmp_path):
    with pytest.raises(FileNotFoundError, match="data.exclude: .*no.tsv: no such file"):
        held_out_files([str(tmp_path / "no.tsv")])


def test_broken_held_out_line_is_named(tmp_path):
    path = tmp_path / "dev.jsonl"
    path.write_text('{"text": "a"}\n{"text"\n')
    with pytest.raises(ValueError, match=r"dev.jsonl:2: not valid JSON"):
        file_hashes(path)
    assert file_hashes(path, strict=False) == {content_hash("a")}


@pytest.mark.parametrize(
    "values, message",
    [
        ({"max_word": 3}, "cleaning.max_word is not an option of CleaningRules; did you mean"),
        ({"max_words": 0}, "cleaning.max_words=0 must be at least 1"),
        (
            {"min_script_share": 2.0},
            "cleaning.min_script_share=2.0 must be at least 0",
        ),
    ],
)
def test_wrong_settings_are_explained(values, message):
    with pytest.raises(ValueError, match=message):
        options.make(CleaningRules, values, "cleaning")


def test_alphabet_only_needs_an_alphabet_for_each_language():
    rules = CleaningRules(alphabet_only=True)
    rules.check_languages(["de", "en"])
    with pytest.raises(ValueError, match="unknown alphabet of sw; set it to False"):
        rules.check_languages(["en", "sw"])


def test_defaults_are_the_published_ones():
    rules = CleaningRules()
    assert (rules.max_words, rules.max_length_ratio) == (100, 1.5)
    assert len(set(REASONS)) == len(REASONS)
