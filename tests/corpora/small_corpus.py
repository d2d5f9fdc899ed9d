"""A tiny parallel corpus, the arguments that prepare it, and what is left on disk."""

from pathlib import Path

import numpy as np

from xling_jax import options
from xling_jax.corpora import prepare as prepare_lib
from xling_jax.corpora.cleaning import CleaningRules
from xling_jax.corpora.options import Preparation, VocabOptions
from xling_jax.corpora.readers.base import Row
from xling_jax.corpora.specs import read_corpus
from xling_jax.corpora.stages import PreparedData

WORDS = {
    "de": ["Haus", "Baum", "Straße", "Wasser", "Brot", "Himmel", "Licht", "Vogel", "Stein"],
    "en": ["house", "tree", "street", "water", "bread", "sky", "light", "bird", "stone"],
    "fr": ["maison", "arbre", "rue", "eau", "pain", "ciel", "lumière", "oiseau", "pierre"],
}


def write_corpus(path: Path, num_rows: int, languages=("de", "en", "fr"), seed=0) -> str:
    """Writes rows whose i-th words translate one another; returns the corpus's name."""
    rng = np.random.default_rng(seed)
    lines = ["\t".join(languages)]
    for _ in range(num_rows):
        ids = rng.integers(0, 9, rng.integers(4, 12))
        lines.append("\t".join(" ".join(WORDS[code][i] for i in ids) for code in languages))
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return f"tsv:{path}"


def write_file(path: Path, content: str | bytes) -> str:
    """Writes a file and returns its path."""
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return str(path)


def read_rows(spec: str, languages=("de", "en")) -> list[Row]:
    """All rows of a corpus."""
    return list(read_corpus(spec, languages))


def preparation(**given) -> Preparation:
    """A preparation from plain values."""
    for name, rules in (("cleaning", CleaningRules), ("vocab", VocabOptions)):
        given[name] = options.make(rules, given.get(name, {}), name)
    return Preparation(**given)


def prepare(*, workdir: Path, **given) -> PreparedData:
    """As `corpora.prepare.prepare`, of plain values."""
    how = ("num_workers", "open_teacher", "keep")
    how = {name: given.pop(name) for name in how if name in given}
    return prepare_lib.prepare(preparation(**given), workdir=workdir, **how)


def vocab_path(prepared: PreparedData) -> Path:
    """The SentencePiece model of a workdir."""
    return prepared.directory.parent / "vocab" / "sentencepiece.model"


def settings(*specs: str, **changes) -> dict:
    """Keyword arguments for `prepare` that suit a tiny corpus."""
    return {
        "languages": ("de", "en", "fr"),
        "corpora": specs,
        "pairs": ("de-en", "en-de", "fr-en"),
        "vocab": {"size": 80, "sample_sentences": 300},
        "seed": 3,
        "num_workers": 1,
        **changes,
    }


def tree(directory: Path) -> dict[str, bytes]:
    """Content of all files but the lock."""
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and path.name != ".lock"
    }
