"""The text that `lab/mini/mini.py` trains on, and what it makes of it: translations and the like.

Each writer takes the experiment, the folder of the data and the file to write.
"""

import gzip
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from mini_careless import careless

from xling_jax.corpora.quickstart_text import content
from xling_jax.files.whole import write_whole
from xling_jax.train.experiment import Experiment

# Names that begin so hold text that may be used for research only, or test sets.
NOT_PUBLISHABLE = ("multi30k.", "news.", "news2.", "idioms.en-de.", "xquad.", "tico19.")
# Rows of files whose names begin so; all of the others.
LIMITS = {
    "debian-descriptions.": 30_000,
    "debian-messages.": 40_000,
    "dict-ding.": 120_000,
    "europarl.": 60_000,
}
# What the run on everyday text reads: these files, and rows of a few others.
EVERYDAY = (
    "debian-dialogs.",
    "debian-games.",
    "games.",
    "idioms-phrases.",
    "sent-ding.",
    "stories.",
    "tatoeba",
)
EVERYDAY_LIMITS = {
    "debian-descriptions.": 5000,
    "debian-manuals.": 5000,
    "dict-": 15_000,
    "europarl.": 8000,
    "lohelp.": 5000,
    "messages.": 5000,
}
# At most so many rows of `write_unaccented` and of `write_careless`, of each kind.
NUM_UNACCENTED = {"accents": 120_000}
NUM_CARELESS = NUM_UNACCENTED | {
    "punctuation": 30_000,
    "typo": 50_000,
    "markup": 30_000,
    "address": 30_000,
}
# Lines of text for the principal axes.
NUM_AXES_LINES = 200_000
# Rows with English, for the values of words.
NUM_ENGLISH_ROWS = 250_000
# What these lines, these rows and the careless pairs are drawn from.
ROWS_OF_EACH = 20_000
SKIN_TONES = {chr(code) for code in range(0x1F3FB, 0x1F400)}
VARIATION = "\ufe0f"

# Italian and Portuguese have few everyday sentences, Spanish and Portuguese few debates. Beginning
# of a file's name, the language translated, the language it becomes, the languages kept beside it,
# and the share of words without a translation that a sentence may have.
TRANSLATED = (
    ("docs.", "es", "it", ("en",), 0.1),
    ("europarl.en-es.", "es", "pt", ("en", "es"), 0.1),
    ("europarl.en-fr.", "fr", "es", ("en", "fr"), 0.1),
    ("phpmanual.", "es", "it", ("en",), 0.1),
    ("tatoeba.", "es", "it", ("de", "en", "fr"), 0.0),
    ("tatoeba.", "es", "pt", ("en",), 0.0),
)
APERTIUM_MODES = {("es", "it"): "spa-ita", ("es", "pt"): "es-pt", ("fr", "es"): "fr-es"}
# Apertium's marks of a word without a translation or an inflection; names keep their capital.
UNTRANSLATED = re.compile(r"[#@]|\*[^\W\dA-ZÀ-Þ_]")


def corpora(experiment: Experiment, directory: Path, everyday: bool = False) -> tuple[str, ...]:
    """The corpora of a folder with pairs of the config that may stand behind published weights.

    Args:
        experiment: its `data.pairs` are used.
        directory: the folder, of `*.tsv.gz`.
        everyday: only what `EVERYDAY` and `EVERYDAY_LIMITS` name.
    """
    found, pairs = [], [{*pair.split("-")} for pair in experiment.data.pairs]
    for path in sorted(directory.glob("*.tsv.gz")):
        columns = {*columns_of(path)}
        if path.name.startswith(NOT_PUBLISHABLE) or not any(pair <= columns for pair in pairs):
            continue
        limit = limit_of(path, EVERYDAY_LIMITS if everyday else LIMITS)
        if everyday and limit is None and not path.name.startswith(EVERYDAY):
            continue
        found.append(f"tsv:{path}" + (f"[:{limit}]" if limit else ""))
    return tuple(found)


def limit_of(path: Path, limits: dict[str, int] = LIMITS) -> int | None:
    """How many rows of a file are used; None for all."""
    found = [rows for prefix, rows in limits.items() if path.name.startswith(prefix)]
    return found[0] if found else None


def columns_of(path: Path) -> list[str]:
    """The columns that the first line of a file names."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return file.readline().rstrip("\n").split("\t")


def rows_of(
    path: Path, languages: Iterable[str], count: int | None = None
) -> Iterator[dict[str, str]]:
    """The first rows of a file, language -> text; cells without text are left out."""
    with gzip.open(path, "rt", encoding="utf-8", newline="\n") as file:
        columns = file.readline().rstrip("\n").split("\t")
        for _, line in zip(range(sys.maxsize if count is None else count), file):
            cells = zip(columns, line.rstrip("\n").split("\t"))
            yield {code: text for code, text in cells if text and code in languages}


def sample_rows(experiment: Experiment, data: Path) -> Iterator[dict[str, str]]:
    """The first rows of each corpus, language -> text."""
    for spec in corpora(experiment, data / "parallel"):
        path = Path(spec.removeprefix("tsv:").partition("[")[0])
        yield from rows_of(path, experiment.languages, ROWS_OF_EACH)


def write_lines(experiment: Experiment, data: Path, output: Path) -> None:
    """Writes lines drawn from the text in all languages."""
    lines = [text for row in sample_rows(experiment, data) for text in row.values()]
    random.Random(0).shuffle(lines)
    write_whole(output, "\n".join([*lines[:NUM_AXES_LINES], ""]))


def write_english(experiment: Experiment, data: Path, output: Path) -> None:
    """Writes rows drawn from the text that has English."""
    rows = [row for row in sample_rows(experiment, data) if len(row) > 1 and "en" in row]
    random.Random(0).shuffle(rows)
    write_rows(experiment, output, rows[:NUM_ENGLISH_ROWS])


def write_unaccented(experiment: Experiment, data: Path, output: Path) -> None:
    """Writes pairs of which one side has lost its accents."""
    write_changed(experiment, data, output, NUM_UNACCENTED)


def write_careless(experiment: Experiment, data: Path, output: Path) -> None:
    """Writes pairs of which one side is as people type in a hurry, or as it is in a web page."""
    write_changed(experiment, data, output, NUM_CARELESS)


def write_changed(
    experiment: Experiment, data: Path, output: Path, numbers: dict[str, int]
) -> None:
    """Writes pairs of which one side is changed: so many of each kind of `careless`."""
    generator, rows = random.Random(0), {kind: [] for kind in numbers}
    kinds, counts = [*numbers], [*numbers.values()]
    recent = ["page"]  # words, for addresses
    for row in filter(None, sample_rows(experiment, data)):
        code = generator.choice(sorted(row))
        other = generator.choice(sorted(row.keys() - {code}) or [code])
        (kind,) = generator.choices(kinds, counts)
        changed = careless(row[code], kind, code, recent, generator)
        if changed != row[code] and other != code:
            rows[kind].append({code: changed, other: row[other]})
        recent = [*re.findall(r"[a-z]{3,}", row[code].lower()), *recent][:20]
    found = []
    for kind, count in numbers.items():
        generator.shuffle(rows[kind])
        found += rows[kind][:count]
    generator.shuffle(found)
    write_rows(experiment, output, found)


def write_emoji(experiment: Experiment, data: Path, output: Path) -> None:
    """Writes the names of emoji as translations, and pairs of which one side has the emoji.

    The emoji stands behind the name of another one, since a text without a letter is dropped.
    """
    del data
    try:
        import emoji
    except ImportError:
        sys.exit("lab/mini/mini.sh: the names of emoji come from a package: pip install emoji")
    languages = [code for code in experiment.languages if code in emoji.LANGUAGES]  # all but Dutch
    for code in languages:
        emoji.config.load_language(code)
    names = {
        sign: {code: entry[code].strip(":").replace("_", " ") for code in languages}
        for sign, entry in sorted(emoji.EMOJI_DATA.items())
        if entry["status"] == emoji.STATUS["fully_qualified"]
        and not SKIN_TONES & {*sign}
        and all(code in entry for code in languages)
    }
    generator, signs, rows = random.Random(0), list(names), []
    for sign, name in names.items():
        rows.append(name)
        for code in languages:
            for other in languages:
                if code != other:
                    plain = sign.replace(VARIATION, "") if generator.random() < 0.5 else sign
                    before = names[generator.choice(signs)]
                    pair = {code: f"{before[code]} {plain}"}
                    rows.append(pair | {other: f"{before[other]} {name[other]}"})
    generator.shuffle(rows)
    write_rows(experiment, output, rows)


def write_translated(experiment: Experiment, data: Path, output: Path) -> None:
    """Writes rows of which one side is translated by Apertium from a near language.

    Sentences with words that Apertium does not know are left out, and those of an evaluation set.
    """
    held_out, rows = None, []
    for path in sorted((data / "parallel").glob("*.tsv.gz")):
        columns = {*columns_of(path)}
        for prefix, source, target, kept, share in TRANSLATED:
            usable = source in columns and target not in columns and columns & {*kept} - {source}
            if not usable or target not in experiment.languages or not path.name.startswith(prefix):
                continue
            held_out = held_out or evaluation_texts(data)
            found = [r for r in rows_of(path, experiment.languages, limit_of(path)) if source in r]
            texts = [row[source] for row in found]
            for row, text, translation in zip(found, texts, translate(texts, source, target)):
                if len(UNTRANSLATED.findall(translation)) > share * len(text.split()):
                    continue
                row = {code: row[code] for code in kept if code in row}
                row[target] = punctuated(re.sub(r"[*#@~¿¡]", "", translation).strip(), text)
                if not held_out & {content(cell) for cell in row.values()}:
                    rows.append(row)
    random.Random(0).shuffle(rows)
    write_rows(experiment, output, rows)


def translate(texts: list[str], source: str, target: str) -> list[str]:
    """Translates line by line with Apertium, which marks words it has no translation for."""
    mode = APERTIUM_MODES[source, target]
    known = []
    if shutil.which("apertium"):
        known = subprocess.run(["apertium", "-l"], capture_output=True, text=True).stdout.split()
    if mode not in known:
        sys.exit(
            f"lab/mini/mini.sh: Apertium's {mode} translates {source} to {target} and is not "
            "installed: apt install apertium apertium-es-pt "
            "apertium-fr-es apertium-spa-ita"
        )
    lines = "".join(text.replace("’", "'") + "\n" for text in texts)
    done = subprocess.run(
        ["apertium", "-f", "line", mode],
        input=lines,
        capture_output=True,
        encoding="utf-8",
        check=True,
    )
    translations = done.stdout.split("\n")[:-1]
    if len(translations) != len(texts):
        sys.exit(
            f"lab/mini/mini.sh: apertium {mode}: {len(translations)} lines for {len(texts)}; "
            f"{done.stderr.strip() or 'no message'}"
        )
    return translations


def punctuated(translation: str, text: str) -> str:
    """Gives back the last mark of a sentence, which Apertium takes for its own."""
    mark = text.rstrip()[-1:]
    return translation + mark if mark in ".!?" and not translation.endswith(mark) else translation


def evaluation_texts(data: Path) -> set[str]:
    """The letters and digits of all texts that the encoder is measured on."""
    texts = set()
    for folder in ("retrieval", "classification"):
        for path in (data / folder).rglob("*.tsv.gz"):
            with gzip.open(path, "rt", encoding="utf-8", newline="\n") as file:
                texts |= {content(cell) for line in file for cell in line.split("\t")}
    return texts


def write_rows(experiment: Experiment, output: Path, rows: list[dict[str, str]]) -> None:
    """Writes rows of a few of the languages, with a header."""
    lines = ["\t".join(row.get(code, "") for code in experiment.languages) for row in rows]
    write_whole(output, "\n".join(["\t".join(experiment.languages), *lines, ""]))
