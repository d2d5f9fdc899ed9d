"""XLIFF 1.2 and 2, and archives of OPUS."""

import zipfile

import pytest

from xling_jax.corpora.specs import open_corpus, read_corpus

ONE = """<?xml version="1.0"?>
<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2">
<file source-language="en-US" target-language="de-DE"><body><group>
<trans-unit id="1"><source>Press <g id="1">Save</g><x id="2"/>now.</source>
<seg-source>Press</seg-source>
<target><mrk mtype="seg">Jetzt</mrk> <ph id="3">{b}</ph>sichern.</target>
<alt-trans><source>Old</source><target>Alt</target></alt-trans></trans-unit>
<trans-unit id="2"><source>New</source><target state="needs-translation">New</target>
</trans-unit>
</group></body></file></xliff>
"""
TWO = """<xliff xmlns="urn:oasis:names:tc:xliff:document:2.0" version="2.0" srcLang="en"
 trgLang="de">
<file id="f"><unit id="1"><mtc:matches xmlns:mtc="m"><mtc:match><source>No</source>
<target>Nein</target></mtc:match></mtc:matches>
<segment><source>The <pc id="1">kettle</pc><ph id="2"/>boils.</source><target>Der Kessel
kocht.</target></segment><segment state="initial"><source>Tea</source><target>Tea</target></segment>
</unit></file></xliff>
"""


OWN = """<xliff version="1.2"><file source-language="fr"><body>
<trans-unit id="1"><source xml:lang="en">Tea</source><target xml:lang="de">Tee</target></trans-unit>
<trans-unit id="2"><source>Thé</source><target xml:lang="de-AT">Tee</target></trans-unit>
</body></file></xliff>
"""


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (ONE, [{"en": "Press Save now.", "de": "Jetzt sichern."}, {"en": "New"}]),
        (TWO, [{"en": "The kettle boils.", "de": "Der Kessel\nkocht."}, {"en": "Tea"}]),
        (OWN, [{"en": "Tea", "de": "Tee"}, {"de": "Tee"}]),
    ],
)
def test_units_and_segments_are_rows(tmp_path, content, expected):
    path = tmp_path / "a.xliff"
    path.write_text(content)
    assert [row.texts for row in read_corpus(str(path), ("de", "en"))] == expected


def test_what_is_no_xliff_is_refused(tmp_path):
    path = tmp_path / "a.xlf"
    path.write_text("<tmx/>")
    with pytest.raises(ValueError, match=r"a\.xlf: is <tmx>, not <xliff>; read it as tmx:"):
        list(read_corpus(str(path), ("de", "en")))
    path.write_text(f'<!DOCTYPE xliff [<!ENTITY a "x">]>{TWO}')
    with pytest.raises(ValueError, match="entity 'a' is declared"):
        list(read_corpus(str(path), ("de", "en")))
    path.write_text(TWO)
    with pytest.raises(ValueError, match="no translation unit has two of fr, en; found de, en$"):
        list(read_corpus(str(path), ("fr", "en")))


def test_an_archive_of_opus_is_read_as_it_is(tmp_path):
    path = tmp_path / "de-en.txt.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("Books.de-en.de", "Ja.\nNein.\n")
        archive.writestr("Books.de-en.en", "Yes.\nNo.\n")
        archive.writestr("Books.de-en.ids", "1\t1\n2\t2\n")
        archive.writestr("README", "...")
    for spec in (f"moses:{path}", str(path), f"moses:{tmp_path}/*.zip"):
        rows = list(read_corpus(spec, ("en", "de")))
        assert rows[1].texts == {"en": "No.", "de": "Nein."}
        assert (rows[1].file, rows[1].line) == (f"{path}!Books.de-en.en", 2)
        assert open_corpus(spec).files() == [str(path)]
    with pytest.raises(ValueError, match="needs members NAME.LANGUAGE for .* fr, it; found"):
        read_corpus(str(path), ("fr", "it"))
    content = path.read_bytes()
    path.write_bytes(content.replace(b"Nein", b"Nain"))
    with pytest.raises(ValueError, match=r"zip!Books\.de-en\.de: damaged compressed file"):
        list(read_corpus(str(path), ("de", "en")))
