"""Catalogs are made by hand here, as files, trees and wheels, in a temporary directory."""

import zipfile

import polib
import pytest

from xling_jax.corpora.specs import open_corpus

LANGUAGES = ["en", "de", "fr"]


def write_po(path, entries, *, language="de", plural="nplurals=2; plural=(n != 1);"):
    """Writes a catalog of {msgid: msgstr} or of polib entries."""
    catalog = polib.POFile()
    catalog.metadata = {
        "Language": language,
        "Content-Type": "text/plain; charset=UTF-8",
        "Plural-Forms": plural,
    }
    if isinstance(entries, dict):
        entries = [polib.POEntry(msgid=key, msgstr=value) for key, value in entries.items()]
    catalog.extend(entries)
    path.parent.mkdir(parents=True, exist_ok=True)
    save = catalog.save_as_mofile if path.suffix == ".mo" else catalog.save
    save(str(path))


def read_texts(path, languages=LANGUAGES):
    return [row.texts for row in read_rows(path, languages)]


def read_rows(path, languages=LANGUAGES):
    return list(open_corpus(f"gettext:{path}").read(languages))


@pytest.fixture
def tree(tmp_path):
    root = tmp_path / "shop" / "locale"
    write_po(root / "de/LC_MESSAGES/app.po", {"Open file": "Datei öffnen", "Close": "Schließen"})
    write_po(root / "fr/LC_MESSAGES/app.po", {"Open file": "Ouvrir le fichier"}, language="fr")
    return tmp_path


def test_languages_of_a_message_are_joined(tree):
    assert read_texts(tree) == [
        {"en": "Open file", "de": "Datei öffnen", "fr": "Ouvrir le fichier"},
        {"en": "Close", "de": "Schließen"},
    ]


def test_catalogs_by_their_suffix_and_by_a_pattern(tree):
    assert read_texts(f"{tree}/**/app.po") == read_texts(tree)
    one = tree / "shop/locale/fr/LC_MESSAGES/app.po"
    expected = [{"en": "Open file", "fr": "Ouvrir le fichier"}]
    assert [row.texts for row in open_corpus(str(one)).read(LANGUAGES)] == expected
    with pytest.raises(FileNotFoundError, match=r"no\.po: no such file"):
        read_rows(tree / "no.po")


def test_row_names_its_catalog_and_line(tree):
    row = read_rows(tree)[1]
    file = tree / "shop/locale/de/LC_MESSAGES/app.po"
    assert row.file == str(file)
    lines = file.read_text(encoding="utf-8").splitlines()
    assert lines[row.line - 1] == 'msgid "Close"'


def test_wheel_mo_and_po_give_the_same_texts(tree):
    expected = read_texts(tree)
    wheel = tree / "wheels" / "shop-1.0-py3-none-any.whl"
    wheel.parent.mkdir()
    with zipfile.ZipFile(wheel, "w") as archive:
        for po in sorted((tree / "shop").rglob("*.po")):
            mo = po.with_suffix(".mo")
            polib.pofile(str(po)).save_as_mofile(str(mo))
            archive.write(mo, mo.relative_to(tree))
    by_english = sorted(expected, key=lambda texts: texts["en"])
    assert sorted(read_texts(wheel), key=lambda texts: texts["en"]) == by_english
    assert sorted(read_texts(wheel.parent), key=lambda texts: texts["en"]) == by_english
    assert open_corpus(f"gettext:{wheel.parent}").files() == [str(wheel)]


def test_one_wheel_per_language_is_joined(tmp_path):
    for tag, text in (("de_DE", "Zelle ausführen"), ("fr_FR", "Exécuter la cellule")):
        write_po(tmp_path / "app.po", {"Run cell": text})
        with zipfile.ZipFile(tmp_path / f"pack_{tag}-1-py3-none-any.whl", "w") as archive:
            archive.write(tmp_path / "app.po", f"pack_{tag}/locale/{tag}/LC_MESSAGES/app.po")
        (tmp_path / "app.po").unlink()
    assert read_texts(tmp_path) == [
        {"en": "Run cell", "de": "Zelle ausführen", "fr": "Exécuter la cellule"}
    ]


def test_catalogs_of_different_programs_are_not_joined(tmp_path):
    write_po(tmp_path / "a/de/LC_MESSAGES/app.po", {"Bank": "Bank"})
    write_po(tmp_path / "b/fr/LC_MESSAGES/app.po", {"Bank": "Rive"}, language="fr")
    assert read_texts(tmp_path) == [{"en": "Bank", "de": "Bank"}, {"en": "Bank", "fr": "Rive"}]


def test_fuzzy_obsolete_and_untranslated_entries_are_left_out(tmp_path):
    entries = [
        polib.POEntry(msgid="A guess", msgstr="Eine Vermutung", flags=["fuzzy"]),
        polib.POEntry(msgid="Gone", msgstr="Weg", obsolete=True),
        polib.POEntry(msgid="Not yet", msgstr=""),
        polib.POEntry(msgid="Good", msgstr="Gut"),
    ]
    write_po(tmp_path / "de.po", entries)
    assert read_texts(tmp_path) == [{"en": "Good", "de": "Gut"}]


def test_plural_forms_follow_the_rule_of_each_language(tmp_path):
    polish = (
        "nplurals=3; plural=(n==1 ? 0 : n%10>=2 && n%10<=4 && (n%100<10 || n%100>=20) ? 1 : 2);"
    )
    forms = {
        "de": ("nplurals=2; plural=(n != 1);", ["%d Datei", "%d Dateien"]),
        "pl": (polish, ["%d plik", "%d pliki", "%d plików"]),
        "ja": ("nplurals=1; plural=0;", ["%d ファイル"]),
    }
    for language, (plural, texts) in forms.items():
        entry = polib.POEntry(
            msgid="%d file", msgid_plural="%d files", msgstr_plural=dict(enumerate(texts))
        )
        write_po(tmp_path / f"{language}.po", [entry], language=language, plural=plural)
    assert read_texts(tmp_path, ["en", "de", "pl", "ja"]) == [
        {"en": "X file", "de": "X Datei", "pl": "X plik", "ja": "X ファイル"},
        {"en": "X files", "de": "X Dateien", "pl": "X plików", "ja": "X ファイル"},
    ]


def test_unreadable_plural_rule_falls_back_with_a_warning(tmp_path, caplog):
    entry = polib.POEntry(
        msgid="%d file", msgid_plural="%d files", msgstr_plural={0: "%d Datei", 1: "%d Dateien"}
    )
    write_po(tmp_path / "de.po", [entry], plural="nplurals=2; plural=EXPRESSION;")
    assert [texts["de"] for texts in read_texts(tmp_path)] == ["X Datei", "X Dateien"]
    assert "EXPRESSION" in caplog.text


def test_contexts_keep_equal_ids_apart(tmp_path):
    entries = [
        polib.POEntry(msgctxt="verb", msgid="Open", msgstr="Öffnen"),
        polib.POEntry(msgctxt="state", msgid="Open", msgstr="Offen"),
    ]
    write_po(tmp_path / "de.po", entries)
    write_po(tmp_path / "fr.po", [polib.POEntry(msgctxt="state", msgid="Open", msgstr="Ouvert")])
    assert read_texts(tmp_path) == [
        {"en": "Open", "de": "Öffnen"},
        {"en": "Open", "de": "Offen", "fr": "Ouvert"},
    ]


def test_symbolic_ids_take_english_from_its_catalog_or_the_default_comment(tmp_path):
    german = [
        polib.POEntry(msgid="label_add", msgstr="Hinzufügen"),
        polib.POEntry(msgid="label_cut", msgstr="Ausschneiden", comment='Default: "Cut it"'),
        polib.POEntry(msgid="label_lost", msgstr="Verloren"),
    ]
    write_po(tmp_path / "de.po", german)
    write_po(tmp_path / "fr.po", {"label_lost": "Perdu"})
    write_po(tmp_path / "en.po", {"label_add": "Add it", "label_cut": ""})
    assert read_texts(tmp_path) == [
        {"en": "Add it", "de": "Hinzufügen"},
        {"en": "Cut it", "de": "Ausschneiden"},
        {"de": "Verloren", "fr": "Perdu"},
    ]


def test_nearest_regional_variant_serves_a_language(tmp_path):
    for tag in ("de_AT", "de_DE", "de_Informal", "fr@quot"):
        write_po(tmp_path / f"{tag}/LC_MESSAGES/app.po", {"January": f"Januar {tag}"})
    assert read_texts(tmp_path) == [{"en": "January", "de": "Januar de_DE"}]
    write_po(tmp_path / "de/LC_MESSAGES/app.po", {"January": "Januar"})
    assert read_texts(tmp_path) == [{"en": "January", "de": "Januar"}]
    assert read_texts(tmp_path, ["en", "de-AT"]) == [{"en": "January", "de-AT": "Januar de_AT"}]


def test_broken_bytes_and_nul_are_reported_with_their_line(tmp_path):
    write_po(tmp_path / "de.po", {"Good": "Gut", "Fine": "Schön", "Zero": "Null"})
    data = (tmp_path / "de.po").read_bytes()
    data = data.replace("Schön".encode(), b"Sch\xf6n").replace(b"Null", b"N\0ll")
    (tmp_path / "de.po").write_bytes(data)
    rows = read_rows(tmp_path)
    assert [row.problem for row in rows] == [None, "broken_utf8", "nul_byte"]
    assert data.splitlines()[rows[1].line - 1] == b'msgid "Fine"'
    assert rows[1].texts == {}


def test_broken_bytes_in_compiled_catalog_lose_one_message(tmp_path):
    write_po(tmp_path / "de.mo", {"Fine": "Schön", "Good": "Gut"})
    data = (tmp_path / "de.mo").read_bytes()
    (tmp_path / "de.mo").write_bytes(data.replace("Schön".encode(), b"Sch\xf6nx"))
    rows = read_rows(tmp_path)
    assert [row.problem for row in rows] == ["broken_utf8", None]


def test_a_header_names_the_charset(tmp_path):
    head = '"Language: de_DE\\n"\n"Content-Type: text/plain; charset=ISO-8859-1\\n"\n\n'
    text = f'msgid ""\nmsgstr ""\n{head}msgid "Nice"\nmsgstr "Schön"\n'
    (tmp_path / "texts.de.po").write_bytes(text.encode("latin-1"))
    assert read_texts(tmp_path / "texts.de.po") == [{"en": "Nice", "de": "Schön"}]


def test_line_separators_inside_a_message_do_not_break_it(tmp_path):
    (tmp_path / "de.po").write_text('msgid "One two"\nmsgstr "Eins\u2028zwei"\n', encoding="utf-8")
    assert read_texts(tmp_path) == [{"en": "One two", "de": "Eins zwei"}]


@pytest.mark.parametrize(
    ("name", "content", "what"),
    [
        ("de.po", b'msgid "a"b"\n', "gettext catalog"),
        ("de.mo", b"\xde\x12", "gettext catalog"),
        ("a.whl", b"no zip", "wheel"),
    ],
)
def test_broken_catalogs_and_wheels_are_named(tmp_path, name, content, what):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=f"{name}: not a valid {what}"):
        read_texts(tmp_path)


@pytest.mark.parametrize("encoding", ["idna", "utf-16", "unicode_escape", "nothing"])
def test_a_compiled_catalog_in_an_encoding_that_is_not_its_own_is_named(tmp_path, encoding):
    write_po(tmp_path / "de.mo", {"Fine": "Sch\u00f6n", "Bad": r"Schlecht \x"})
    data = (tmp_path / "de.mo").read_bytes()
    header = b"Content-Type: text/plain; charset=UTF-8\n"
    declared = header.replace(b"UTF-8", encoding.encode()).replace(b"text/plain", b"")
    (tmp_path / "de.mo").write_bytes(data.replace(header, declared.ljust(len(header))))
    with pytest.raises(ValueError, match=r"de\.mo: not a valid gettext catalog"):
        read_texts(tmp_path)


def test_wrong_places_and_options_are_explained(tree, tmp_path):
    with pytest.raises(FileNotFoundError, match="no such file"):
        read_texts(tmp_path / "absent")
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match="no .po or .mo"):
        read_texts(tmp_path / "empty")
    with pytest.raises(ValueError, match="at least two of nl, it"):
        read_texts(tree, ["nl", "it"])
