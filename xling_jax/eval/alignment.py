"""Document alignment: what share of the gold pairs of documents is found?

The rules of WMT16 (pairs one to one, recall over the gold pairs) and, for many languages, the form
of WMT19 (all pairs of languages), in the eight variants of LAWDR's tables.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from xling_jax.documents import debias
from xling_jax.documents.alignment import AlignmentOptions, match_urls
from xling_jax.documents.lawdr import Lawdr, document_vectors
from xling_jax.documents.records import (
    AlignmentData,
    Documents,
    load_alignment_data,
    load_document_pairs,
)
from xling_jax.encode.documents import MODES, MODES_HELP, write_mapped
from xling_jax.encode.texts import Encode
from xling_jax.eval.results import markdown_table, percent
from xling_jax.eval.tasks import Task
from xling_jax.options import OptionError, option

# Document vectors from sentence vectors, and how pairs are scored: the eight cells of LAWDR's
# tables, the plainest first.
REPRESENTATIONS = ("biased-mean", "biased-weighted", "debiased-mean", "debiased-weighted")
SIMILARITIES = ("cosine", "margin")
CELLS = tuple(f"{vectors}-{score}" for vectors in REPRESENTATIONS for score in SIMILARITIES)
# The baseline of the first tokens of a document.
_FIRST_TOKENS = 512
_FIRST = f"first{_FIRST_TOKENS}"


@dataclass(frozen=True, kw_only=True)
class Alignment(AlignmentOptions, Task):
    """Recall of documents aligned one to one, in the eight variants of LAWDR's tables."""

    gold: Path | None = option(
        None,
        "pairs of ids, source id<TAB>target id, between the two files of --data (WMT16); by "
        "default documents of equal id in one file are translations (WMT19)",
    )
    document_mode: str = option("sentences", MODES_HELP, MODES)
    cells: tuple[str, ...] = option(
        ("all",),
        "variants to measure; all leaves out the debiased ones if --debias is 0",
        ("all", *CELLS),
        metavar="NAME,NAME",
    )
    baselines: bool = option(
        False, "also measure whole documents as one sequence, and their first 512 tokens"
    )

    title = "Document alignment"
    data_help = (
        'JSON lines {"id", "lang", "text" or "sentences"}; any number of files, or with --gold two'
    )
    offers = Task.offers | {"config"}
    config_keys = ("weighting", "similarity")  # of `xling align`; here all are measured
    examples = """examples:
  xling evaluate alignment --model M --data news.jsonl.gz --languages en,de,fr --baselines \\
      --output runs/alignment
  xling evaluate alignment --model M --data fr.jsonl.gz en.jsonl.gz --gold test.pairs \\
      --domain domain --url-matching --output runs/wmt16
"""
    # The published scores are of other data.
    columns = {"recall": "recall"}
    primary = "recall"
    cheap = {"cells": ("biased-mean-margin",)}

    def __post_init__(self):
        super().__post_init__()
        if self.debias == 0 and any(cell.startswith("debiased") for cell in self.cells):
            given = ",".join(self.cells)
            raise OptionError(f"cells={given}: debias=0 leaves out the debiased ones; name others")

    @property
    def _cells(self) -> list[str]:
        if "all" not in self.cells:
            return [cell for cell in CELLS if cell in self.cells]
        return [cell for cell in CELLS if self.debias != 0 or cell.startswith("biased")]

    def load(self, paths: Sequence[str], languages: Sequence[str] | None) -> list[AlignmentData]:
        """See `load_alignment_data` and `load_document_pairs`."""
        options = {"domain": self.domain or None, "splitter": self.splitter}
        if self.gold is None:
            return [load_alignment_data(path, languages, **options) for path in paths]
        if len(paths) != 2:
            rule = "needs two files of data, source and target"
            raise OptionError(f"gold={self.gold}: {rule}; got {' '.join(map(str, paths))}")
        return [load_document_pairs(*paths, self.gold, languages, **options)]

    def measure(
        self, encoder: Any, data: AlignmentData, directory: Path | None = None
    ) -> dict[str, AlignmentResult]:
        """All cells, between all languages of a data set."""
        debias.check_rank(self.debias, encoder)
        encode = encoder.encode
        if directory is not None and hasattr(encoder, "encode_stream"):
            encode = lambda texts: write_mapped(
                encoder.encode_stream(iter(texts)), encoder.dim, len(texts), directory, data.name
            )
        baselines = self._baselines(encoder)
        split = Documents.split
        if self.document_mode != "sentences":
            split = lambda side: side.inputs(encoder, self.document_mode)
        result = measure_alignment(encode, data, self, self._cells, baselines, split)
        return {data.name: result}

    def options(self, encoder: Any, outcomes: Mapping[str, AlignmentResult]) -> dict[str, Any]:
        """The options, and the tokens that each baseline reads."""
        read = {"document": getattr(encoder, "max_length_tokens", 0), _FIRST: _FIRST_TOKENS}
        tokens = {name: read[name] for name in self._baselines(encoder)}
        cells = {"cells": self._cells, "baseline_tokens": tokens}
        return super().options(encoder, outcomes) | cells

    def tables(
        self, data: Sequence[AlignmentData], outcomes: Mapping[str, AlignmentResult]
    ) -> list[str]:
        """A section for each data set."""
        return [_table(name, result) for name, result in outcomes.items()]

    @classmethod
    def conditions(cls, settings: Mapping[str, Any], matrix: Mapping[str, Any]) -> str:
        """The primary cell, components removed, and whether pages were paired by URL first."""
        ranks = {*(matrix.get("ranks") or {}).values()} - {0}
        cells = [c for c in settings.get("cells") or () if ranks or c.startswith("biased")]
        words = [*cells[-1:], *(f"{rank} components" for rank in ranks)]
        return ", ".join(words + ["URLs first"] * bool(settings.get("url_matching")))

    def _baselines(self, encoder: Any) -> dict[str, Encode]:
        """Encoders of whole documents by the names of their cells."""
        found = {"document": encoder.encode} if self.baselines else {}
        if found and encoder.max_length_tokens > _FIRST_TOKENS:
            found[_FIRST] = encoder.with_max_length(_FIRST_TOKENS).encode
        return found


@dataclass(frozen=True)
class PairCounts:
    """Pairs of documents of two languages in one cell: gold, found of these, and found in all."""

    num_gold: int
    num_correct: int
    num_aligned: int

    @property
    def recall(self) -> float:
        """Share of the gold pairs that were found."""
        return self.num_correct / self.num_gold


@dataclass(frozen=True)
class AlignmentResult:
    """Scores of one data set."""

    counts: dict[str, dict[tuple[str, str], PairCounts]]  # by cell or baseline, then by languages
    ranks: dict[str, int]  # components removed from the sentence vectors, by language
    num_empty: dict[str, int]  # documents without sentences, which are never matched

    @property
    def primary(self) -> str:
        """The last of the cells measured that is no baseline: complete LAWDR, if measured."""
        return [cell for cell in self.counts if cell in CELLS][-1]

    def shown(self, cell: str) -> str:
        """A cell as people should read it: where no components were removed, it is a biased one."""
        return cell if any(self.ranks.values()) else cell.replace("debiased", "biased")

    def micro_recall(self, cell: str) -> float:
        """Share of all gold pairs that were found."""
        counts = self.counts[cell].values()
        return sum(c.num_correct for c in counts) / sum(c.num_gold for c in counts)

    def macro_recall(self, cell: str) -> float:
        """Mean of the recall of each pair of languages."""
        return float(np.mean([counts.recall for counts in self.counts[cell].values()]))

    def scores(self) -> dict[str, float]:
        """`recall` of the primary cell; of each, `recall_CELL` and `macro_recall_CELL` with "_"."""
        scores = {"recall": self.micro_recall(self.primary)}
        for cell in self.counts:
            key = cell.replace("-", "_")
            scores[f"recall_{key}"] = self.micro_recall(cell)
            scores[f"macro_recall_{key}"] = self.macro_recall(cell)
        return scores

    def to_dict(self) -> dict[str, Any]:
        """As plain values."""
        cells = {
            cell: {
                "-".join(pair): {"recall": found.recall} | dataclasses.asdict(found)
                for pair, found in counts.items()
            }
            for cell, counts in self.counts.items()
        }
        return {"cells": cells, "ranks": self.ranks, "num_empty": self.num_empty}


def measure_alignment(
    encode: Encode,
    data: AlignmentData,
    options: AlignmentOptions,
    cells: Sequence[str],
    baselines: Mapping[str, Encode],
    split: Callable[[Documents], Iterable[Sequence[str]]] = Documents.split,
) -> AlignmentResult:
    """Aligns all pairs of languages that have gold pairs, in every cell.

    Args:
        encode: texts to [n, dim] embeddings; called once for each language.
        data: documents and gold pairs.
        options: of the alignment.
        cells: of `CELLS`.
        baselines: name -> function from whole documents to embeddings [n, dim].
        split: the texts of each document that are encoded, by default its sentences.
    """
    vectors, offsets = {}, {}
    for code, side in data.documents.items():
        parts = [*split(side)]
        if not any(parts):
            raise ValueError(f"{side.name}: documents in {code} must have sentences; found none")
        vectors[code] = encode([text for part in parts for text in part])
        offsets[code] = np.cumsum([0, *map(len, parts)])
    rank = options.debias if any(cell.startswith("debiased") for cell in cells) else 0
    rank = debias.find_rank(rank, vectors, options.seed)
    names = [*dict.fromkeys(cell.rpartition("-")[0] for cell in cells)]
    documents = {}
    for code, side in data.documents.items():
        # Popped, as sentence vectors take the most memory and are no longer needed.
        documents[code] = represent_documents(
            vectors.pop(code), offsets[code], names, rank=rank, seed=options.seed
        )
        for name, encode_texts in baselines.items():
            whole = np.array(encode_texts(side.texts), np.float32)
            whole[np.array(side.lengths) == 0] = 0  # never matched
            documents[code][name] = whole
    cells = (*cells, *(f"{name}-{score}" for name in baselines for score in SIMILARITIES))
    counts: dict[str, dict[tuple[str, str], PairCounts]] = {cell: {} for cell in cells}
    for (first, second), gold in data.gold.items():
        sides = data.documents[first], data.documents[second]
        accepted = None
        if options.url_matching:
            accepted = match_urls(*sides, use_domains=bool(options.domain))
        for cell in cells:
            name, _, similarity = cell.rpartition("-")
            both = documents[first][name], documents[second][name]
            pairs = options.match(sides, both, similarity, accepted)
            # Each document is in one pair at most, as the rules of WMT16 want.
            right = gold & {(i, j) for _, i, j in pairs}
            counts[cell][first, second] = PairCounts(len(gold), len(right), len(pairs))
    num_empty = {code: side.num_empty for code, side in data.documents.items()}
    return AlignmentResult(counts, dict.fromkeys(data.documents, rank), num_empty)


def represent_documents(
    vectors: np.ndarray, offsets: np.ndarray, names: Sequence[str], *, rank: int, seed: int = 0
) -> dict[str, np.ndarray]:
    """Makes document vectors of one language, as `Lawdr` would in each of some `REPRESENTATIONS`.

    `vectors` [n, dim] are those of its sentences; document i has rows offsets[i] to offsets[i + 1],
    `offsets` [docs + 1] int. With rank 0 the debiased ones are those of the biased ones. Returns
    [docs, dim] float32 for each; all-zero for documents without sentences.
    """
    poolings = dict.fromkeys(name.rpartition("-")[2] for name in names)
    weighting = "kde" if "weighted" in poolings else "none"
    lawdr = Lawdr(rank=rank or None, weighting=weighting, seed=seed).fit(vectors)
    weights = {"mean": None, "weighted": lawdr.weights(vectors)}
    pooled = {name: document_vectors(vectors, offsets, weights[name]) for name in poolings}
    found = {}
    for name in names:
        kind, _, pooling = name.rpartition("-")
        found[name] = pooled[pooling]
        if kind == "debiased" and lawdr.components is not None:
            found[name] = debias.remove_components(pooled[pooling], lawdr.components)
    return found


def _table(name: str, result: AlignmentResult) -> str:
    """Recall of every cell, then of the primary one by pair of languages."""
    primary = result.primary
    rows = [
        [shown, percent(result.micro_recall(cell)), percent(result.macro_recall(cell))]
        for shown, cell in {result.shown(cell): cell for cell in result.counts}.items()
    ]
    by_pair = [
        ["-".join(pair), percent(found.recall), f"{found.num_gold}"]
        for pair, found in result.counts[primary].items()
    ]
    sections = [f"## {name}: document alignment, %"]
    sections.append(markdown_table(["documents", "recall", "macro recall"], rows))
    sections.append(markdown_table([result.shown(primary), "recall", "gold pairs"], by_pair))
    for title, counts in (
        ("Language components removed", result.ranks),
        ("Empty documents, never matched", result.num_empty),
    ):
        shown = ", ".join(f"{count} in {code}" for code, count in counts.items() if count)
        sections += [f"{title}: {shown or 'none'}."]
    return "\n\n".join(sections) + "\n"
