"""lab/mini/mini_debian.py, which finds parallel text in Debian packages."""

import bz2
import gzip
import lzma
import shutil
import subprocess

import polib
import pytest

from tests.lab.scripts import script

pytest.importorskip("lxml")

HEADER = "en\tde\tfr\tes\tit"
PAGE = """<page xmlns="http://projectmallard.org/1.0/">
<title>{title}</title>
<section><list><item><p>{item} &owl;.</p></item></list><code><p>x</p></code></section>
</page>"""

needs_dpkg = pytest.mark.skipif(not shutil.which("dpkg-deb"), reason="needs dpkg-deb")


def run(*words):
    with script("mini/mini_debian.py") as mini_debian:
        mini_debian.main([*map(str, words)])


def package(tmp_path, name, section, files):
    root = tmp_path / "build" / name
    control = f"Package: {name}\nVersion: 1\nArchitecture: all\nSection: {section}\n"
    control += "Maintainer: A <a@b.c>\nDescription: owls\n"
    for path, text in {"DEBIAN/control": control, **files}.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        if path.endswith(".mo"):
            catalog = polib.POFile()
            catalog.metadata = {"Content-Type": "text/plain; charset=UTF-8"}
            catalog.extend(polib.POEntry(msgid=source, msgstr=text[source]) for source in text)
            catalog.save_as_mofile(str(root / path))
        else:
            (root / path).write_text(text, encoding="utf-8")
    (root / "DEBIAN").chmod(0o755)  # whatever the umask; dpkg-deb insists
    (tmp_path / "debs").mkdir(exist_ok=True)
    deb = tmp_path / f"debs/{name}_1_all.deb"
    subprocess.run(["dpkg-deb", "--build", root, deb], check=True, capture_output=True)
    return deb


def translations(prefix, **of_languages):
    return {f"{prefix}/{code}/LC_MESSAGES/owl.mo": of_languages[code] for code in of_languages}


def compressed(path, entries, opened):
    texts = (f"Package: p\nDescription-md5: {key}\n{text}\n" for key, text in entries.items())
    with opened(path, "wt", encoding="utf-8") as file:
        file.write("\n".join(texts))


@pytest.fixture
def data(tmp_path):
    directory = tmp_path / "data"
    for folder in ("parallel", "retrieval", "classification"):
        (directory / folder).mkdir(parents=True)
    with gzip.open(directory / "retrieval/d.dev.tsv.gz", "wt", encoding="utf-8") as file:
        file.write("de\nEine Eule, die niemand sieht.\n")
    return directory


def rows_of(data, kind):
    path = data / f"parallel/{kind}.en-de-fr-es-it.tsv.gz"
    header, *rows = gzip.decompress(path.read_bytes()).decode().splitlines()
    assert header == HEADER
    return sorted(rows)


@needs_dpkg
def test_text_of_packages(tmp_path, data):
    package(
        tmp_path,
        "owl-data",
        "games",
        {
            **translations(
                "usr/share/games/owl/locale",
                de={
                    "The owl flies over %s.": "Die Eule fliegt über %s.",
                    "An owl that no one sees.": "Eine Eule, die niemand sieht.",  # held out
                    "Give it back to me!": "Give it back to me!",  # a copy
                    "%s and %s see one owl": "%s und %s sehen eine Eule",
                    "Play now": "Spielen",
                },
                it={"The owl flies over %s.": "Il gufo vola sopra %s."},
            ),
            "usr/share/games/owl/script/a/dialogs_en.lua": 'dialogId("1", "f", "Is this an owl?")\n'
            'dialogId("2", "f", "It is \\"one\\" of them.")\n',
            "usr/share/games/owl/script/a/dialogs_es.lua": 'dialogId("1", "f", "Is this an owl?")\n'
            'dialogStr("¿Esto es un búho?")\ndialogId("2", "f", "It is \\"one\\" of them.")\n',
        },
    )
    page = "usr/share/help/{}/owl/index.page"
    package(
        tmp_path,
        "iso-codes",
        "gnome",
        {
            page.format("C"): PAGE.format(title="What an owl sees", item="Every owl sleeps in"),
            page.format("de"): PAGE.format(title="Was eine Eule sieht", item="Jede schläft in"),
            page.format("fr"): "<page><title>Ce que voit une chouette</title></page>",
            **translations(
                "usr/share/locale", fr={"Owl Island": "Île aux Chouettes", "Owl": "Owl"}
            ),
        },
    )
    owls = "Description-{}: {}\n {}\n {}\n .\n * {}\n"
    english = owls.format("en", "owls at night", "Shows four owls", "at once.", "in all colors")
    compressed(tmp_path / "Translation-en.xz", {"a": english, "b": english}, lzma.open)
    italian = owls.format("it", "gufi di notte", "Mostra quattro", "gufi insieme.", "a colori")
    compressed(tmp_path / "Translation-it.bz2", {"a": italian}, bz2.open)

    run("write", "--debs", tmp_path / "debs", "--descriptions", tmp_path, "--data", data)
    assert rows_of(data, "debian-games") == [
        "The owl flies over X.\tDie Eule fliegt über X.\t\t\tIl gufo vola sopra X."
    ]
    assert rows_of(data, "debian-dialogs") == ["Is this an owl?\t\t\t¿Esto es un búho?\t"]
    assert rows_of(data, "debian-manuals") == [
        "Every owl sleeps in owl.\tJede schläft in owl.\t\t\t",
        "What an owl sees\tWas eine Eule sieht\t\t\t",
    ]
    assert rows_of(data, "debian-descriptions") == [
        "Shows four owls at once.\t\t\t\tMostra quattro gufi insieme."
    ]
    assert rows_of(data, "debian-messages") == []
    assert rows_of(data, "dict-debian") == ["Owl Island\t\tÎle aux Chouettes\t\t"]
    assert [path.name for path in data.iterdir() if path.name.startswith("tmp")] == []


def test_packages_with_enough_languages(tmp_path, capsys):
    catalog, manual = "usr/share/locale/{}/LC_MESSAGES/a.mo", "usr/share/help/{}/b/index.page"
    lines = [f"{catalog.format(code)}    games/owl,libs/owl-common" for code in ["de", "fr", "es"]]
    lines.append(f"{catalog.format('it')}    games/owl")
    lines += [f"{manual.format(code)}  gnome/owl-help" for code in ("de", "fr", "es")]
    lines += [f"{manual.format(code)}  gnome/owl-doc" for code in ("C", "de", "fr")]
    with gzip.open(tmp_path / "Contents-all.gz", "wt", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")
    run("list", tmp_path / "Contents-all.gz")
    names = capsys.readouterr().out.split()
    found = [name for name in names if name.startswith("owl")]
    assert found == ["owl", "owl-help"] and "wesnoth-1.16-httt" in names
