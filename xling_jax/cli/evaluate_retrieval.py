"""`xling evaluate retrieval`."""

from __future__ import annotations

import argparse
import itertools
import logging
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xling_jax.cli.common import UsageError, require_file
from xling_jax.cli.evaluation import (
    EXAMPLE,
    add_common,
    check_names,
    check_output,
    finish,
    load_vectors,
    numbers,
)
from xling_jax.files.hashes import hash_file

if TYPE_CHECKING:
    from xling_jax.encode.encoder import Encoder
    from xling_jax.eval.retrieval import RetrievalMatrix
    from xling_jax.eval.retrieval_data import RetrievalData
    from xling_jax.eval.stored_embeddings import StoredEmbeddings

logger = logging.getLogger(__name__)

_NUM_EXAMPLES = 5  # Translations joined by lines in the projections.
_MAX_HEATMAP_LANGUAGES = 30


def add_task(tasks: Any) -> None:
    """Adds the task to `xling evaluate`."""
    retrieval = tasks.add_parser(
        "retrieval",
        help="is a sentence's translation its nearest neighbor?",
        description="P@k between all languages in both directions, the error rate in the manner "
        "of Tatoeba, xSIM.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_common(
        retrieval,
        "n-way TSV with a header of language codes, or a directory of pairs as Tatoeba's; "
        "any number of them",
        nargs="+",
        embeddings=True,
    )
    retrieval.add_argument(
        "--similarity", choices=("cosine", "margin", "csls"), default="cosine", help="what ranks"
    )
    retrieval.add_argument(
        "--k", type=numbers(int), default=(1, 5), metavar="K,K", help="the k of P@k (1,5)"
    )
    retrieval.add_argument(
        "--match",
        choices=("index", "text"),
        default="index",
        help="right is only the query's own row, as published, or any row with the same text",
    )
    retrieval.add_argument(
        "--distractors",
        nargs="+",
        default=(),
        metavar="NAME.LANG.txt[.gz]",
        help="plain lines that are further candidates",
    )
    retrieval.add_argument(
        "--xsr",
        type=numbers(int),
        nargs="?",
        const=(200_000, 2_000),
        metavar="KEYS,QUERIES",
        help="draw queries and keys from each data set as MUSE does (200000,2000); the rows drawn "
        "are kept in the output directory",
    )
    retrieval.add_argument(
        "--xsr-samples", metavar="DIR", help="the rows that an earlier --xsr has kept there"
    )
    retrieval.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Runs the task.

    Raises:
        UsageError: if an input is missing or the output exists.
        ValueError, OSError: if the model or the data is broken, or writing fails.
    """
    from xling_jax.eval import results as results_lib
    from xling_jax.eval import retrieval, retrieval_data, stored_embeddings

    started = time.monotonic()
    _check_arguments(args)
    output = check_output(args)
    for path in args.distractors:
        require_file(path, "--distractors")
    sets = [retrieval_data.load_retrieval_data(path, args.languages) for path in args.data]
    check_names([data.name for data in sets], args.data)
    held = dict.fromkeys(code for data in sets for code in data.languages)
    for code in args.languages or ():
        if code not in held:
            raise UsageError(f"--languages: {code} is in none of the data, which has {list(held)}")
    encoder = load_vectors(
        args, lambda: stored_embeddings.retrieval_columns(sets, args.distractors)
    )
    output.mkdir(parents=True, exist_ok=True)
    similarity, k_values, match = args.similarity, sorted(set(args.k)), args.match
    texts, metrics, matrices = [], {}, {}
    for data in sets:
        logger.info("%s: %d rows in %s", data.name, data.num_rows, ", ".join(data.languages))
        if args.xsr or args.xsr_samples:
            matrix = _measure_xsr(args, output, encoder, data, k_values)
        else:
            matrix = retrieval.measure_retrieval(
                encoder.encode,
                data,
                similarity=similarity,
                k_values=k_values,
                match=match,
                distractors=retrieval_data.load_distractors(args.distractors, data.languages),
            )
        texts.append(results_lib.retrieval_table(data.name, matrix, similarity))
        metrics |= {f"{data.name}/{m}": matrix.mean(m) for m in matrix.metrics}
        matrices[data.name] = matrix.to_dict()
        if args.pictures and not (args.xsr or args.xsr_samples):
            _draw_retrieval(output, encoder, data, matrix, similarity, k_values[0])
    settings = {
        "similarity": similarity,
        "k_values": k_values,
        "match": match,
        "xsr": args.xsr or args.xsr_samples,
        "margin_neighbors": retrieval.MARGIN_NEIGHBORS,
        "csls_neighbors": retrieval.CSLS_NEIGHBORS,
        "distractors": [{"path": str(p), "sha256": hash_file(p)} for p in args.distractors],
    }
    described = [_describe(path, data) for path, data in zip(args.data, sets)]
    finish(args, encoder, described, settings, metrics, matrices, texts, started)


def _check_arguments(args: argparse.Namespace) -> None:
    if args.xsr and args.xsr_samples:
        raise UsageError("--xsr draws rows, --xsr-samples takes drawn ones; give one of them")
    if args.xsr and (len(args.xsr) != 2 or args.xsr[1] > args.xsr[0]):
        raise UsageError(f"--xsr {args.xsr}: must be KEYS,QUERIES, with at most as many queries")
    if (args.xsr or args.xsr_samples) and (args.distractors or args.match != "index"):
        raise UsageError("--xsr has its own candidates and matches rows: no --distractors, --match")


def _measure_xsr(
    args: argparse.Namespace,
    output: Path,
    encoder: Encoder | StoredEmbeddings,
    data: RetrievalData,
    k_values: list[int],
) -> RetrievalMatrix:
    """Draws or reads the samples of a data set, keeps them in the output, measures."""
    from xling_jax.eval import xsr

    if len(data.parts) > 1:
        raise UsageError(f"--xsr: {data.name} is many files; give them one by one")
    (text,) = data.parts
    name = lambda source, target: f"{data.name}.xsr.{source}-{target}.json"
    if args.xsr:
        samples = xsr.draw_samples(text, *args.xsr)
    else:
        found = {
            direction: Path(args.xsr_samples) / name(*direction)
            for direction in itertools.permutations(text.texts, 2)
        }
        samples = {k: xsr.XsrSample.load(path) for k, path in found.items() if path.exists()}
        if not samples:
            first = next(iter(found.values()))
            raise UsageError(f"--xsr-samples {args.xsr_samples}: holds no {first.name}")
    for direction, sample in samples.items():
        sample.save(output / name(*direction))
    return xsr.xsr_matrix(
        encoder.encode, text, samples, similarity=args.similarity, k_values=k_values
    )


def _describe(path: str, data: RetrievalData) -> dict[str, Any]:
    return {
        "name": data.name,
        "path": str(path),
        "sha256": data.fingerprint,
        "languages": list(data.languages),
        "num_rows": data.num_rows,
    }


def _draw_retrieval(
    output: Path,
    encoder: Encoder | StoredEmbeddings,
    data: RetrievalData,
    matrix: RetrievalMatrix,
    similarity: str,
    k: int,
) -> None:
    """The heatmap, and the projections of the rows that all languages have."""
    from xling_jax.eval import retrieval
    from xling_jax.report import pictures

    if len(matrix.languages) > _MAX_HEATMAP_LANGUAGES or len(data.parts) > 1:
        logger.info("%s: no pictures of many bilingual files; see results.md", data.name)
        return
    pictures.draw_matrix(
        output / f"{data.name}.matrix.png",
        matrix.metrics[f"p_at_{k}"],
        matrix.languages,
        matrix.languages,
        title=f"{data.name}: retrieval P@{k}, %",
        subtitle=f"by {similarity}; mean {100 * matrix.mean(f'p_at_{k}'):.1f}; "
        f"{int(matrix.num_candidates.max()):,} candidates",
    )
    columns = data.parts[0].texts
    full = [i for i, row in enumerate(zip(*columns.values())) if all(row)]
    if len(full) < 2:
        return
    vectors, ids = retrieval.encode_unique(
        encoder.encode, [[column[i] for i in full] for column in columns.values()]
    )
    embeddings = {code: vectors[ids([column[i] for i in full])] for code, column in columns.items()}
    # Spread over the file, so that they are no neighbors in a document.
    count = min(_NUM_EXAMPLES, len(full))
    pivot = next(iter(columns.values()))
    examples = {
        row: pivot[full[row]]
        for row in (len(full) * (2 * place + 1) // (2 * count) for place in range(count))
    }
    for method in pictures.PROJECTIONS:
        pictures.draw_projection(
            output / f"{data.name}.{method}.png",
            embeddings,
            title=f"{data.name}: translations in the plane",
            method=method,
            examples=examples,
        )
