"""`xling evaluate TASK`: measures an encoder; results, a table and pictures in a directory."""

from __future__ import annotations

import argparse
import hashlib
import logging
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xling_jax.cli.common import UsageError, keep_compiled_programs, refuse_existing, require_file

if TYPE_CHECKING:
    from xling_jax.encode.encoder import Encoder
    from xling_jax.eval.classification import ClassificationMatrix
    from xling_jax.eval.retrieval import RetrievalMatrix
    from xling_jax.eval.retrieval_data import RetrievalData

logger = logging.getLogger(__name__)

NUM_EXAMPLES = 5  # Translations joined by lines in the projections.
_MAX_HEATMAP_LANGUAGES = 30

_EXAMPLE = """examples:
  xling evaluate retrieval --model runs/quickstart --data dev.tsv.gz --output runs/retrieval
  xling evaluate retrieval --model M --data tatoeba/ --languages en,de,fr --output O
  xling evaluate classification --model M --data mldoc/ --train-languages en --output O
"""


def add_parser(subparsers: Any) -> None:
    """Adds the command to the parser of `xling`."""
    parser = subparsers.add_parser(
        "evaluate",
        help="measure an encoder",
        description="Measures an encoder. Writes results.json, results.md and pictures to the "
        "output directory and prints the table.",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    tasks = parser.add_subparsers(dest="task", metavar="TASK", required=True)
    retrieval = tasks.add_parser(
        "retrieval",
        help="is a sentence's translation its nearest neighbor?",
        description="P@k between all languages in both directions, the error rate in the manner "
        "of Tatoeba, xSIM.",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_common(
        retrieval,
        "n-way TSV with a header of language codes, or a directory of pairs as Tatoeba's; "
        "any number of them",
        nargs="+",
    )
    retrieval.add_argument(
        "--similarity", choices=("cosine", "margin", "csls"), default="cosine", help="what ranks"
    )
    retrieval.add_argument(
        "--k", type=_numbers(int), default=(1, 5), metavar="K,K", help="the k of P@k (1,5)"
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
    retrieval.set_defaults(run=run_retrieval)
    classification = tasks.add_parser(
        "classification",
        help="labels in one language, texts in the others",
        description="Trains a logistic regression on embeddings of one language and tests it on "
        "all, beside chance and a bag of words.",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_common(
        classification, "directory of {train,dev,test}.LANG.tsv[.gz], label<TAB>text", nargs=None
    )
    classification.add_argument(
        "--train-languages", type=_words, metavar="CODE,CODE", help="those with labels (all)"
    )
    classification.add_argument(
        "--c-values", type=_numbers(float), metavar="C,C", help="regularizations to choose from"
    )
    classification.add_argument("--seed", type=int, default=0, help="of the cross-validation")
    classification.set_defaults(run=run_classification)


def run_retrieval(args: argparse.Namespace) -> None:
    """Runs `xling evaluate retrieval`.

    Raises:
        UsageError: if an input is missing or the output exists.
        ValueError, OSError: if the model or the data is broken, or writing fails.
    """
    from xling_jax.eval import results as results_lib
    from xling_jax.eval import retrieval, retrieval_data

    started = time.monotonic()
    output = _check_output(args)
    for path in args.distractors:
        require_file(path, "--distractors")
    sets = [retrieval_data.load_retrieval_data(path, args.languages) for path in args.data]
    _check_names([data.name for data in sets], args.data)
    held = dict.fromkeys(code for data in sets for code in data.languages)
    for code in args.languages or ():
        if code not in held:
            raise UsageError(f"--languages: {code} is in none of the data, which has {list(held)}")
    encoder = _load(args.model)
    output.mkdir(parents=True, exist_ok=True)
    similarity, k_values, match = args.similarity, sorted(set(args.k)), args.match
    texts, metrics, matrices = [], {}, {}
    for data in sets:
        logger.info("%s: %d rows in %s", data.name, data.num_rows, ", ".join(data.languages))
        distractors = retrieval_data.load_distractors(args.distractors, data.languages)
        matrix = retrieval.measure_retrieval(
            encoder.encode,
            data,
            similarity=similarity,
            k_values=k_values,
            match=match,
            distractors=distractors,
        )
        texts.append(results_lib.retrieval_table(data.name, matrix, similarity))
        metrics |= {f"{data.name}/{m}": matrix.mean(m) for m in matrix.metrics}
        matrices[data.name] = matrix.to_dict()
        if args.pictures:
            _draw_retrieval(output, encoder, data, matrix, similarity, k_values[0])
    settings = {
        "similarity": similarity,
        "k_values": k_values,
        "match": match,
        "margin_neighbors": retrieval.MARGIN_NEIGHBORS,
        "csls_neighbors": retrieval.CSLS_NEIGHBORS,
        "distractors": [{"path": str(p), "sha256": _file_hash(p)} for p in args.distractors],
    }
    described = [
        {
            "name": data.name,
            "path": str(path),
            "sha256": data.fingerprint,
            "languages": list(data.languages),
            "num_rows": data.num_rows,
        }
        for path, data in zip(args.data, sets)
    ]
    _finish(args, encoder, described, settings, metrics, matrices, texts, started)


def run_classification(args: argparse.Namespace) -> None:
    """Runs `xling evaluate classification`.

    Raises:
        UsageError: if an input is missing or the output exists.
        ValueError, OSError: if the model or the data is broken, or writing fails.
    """
    from xling_jax.eval import classification, classification_data
    from xling_jax.eval import results as results_lib

    started = time.monotonic()
    output = _check_output(args)
    known = classification_data.list_languages(args.data[0])
    for code in [*(args.languages or ()), *(args.train_languages or ())]:
        if code not in known:
            raise UsageError(f"--languages: unknown language {code}; the data has {known}")
    data = classification_data.load_classification_data(args.data[0], args.languages)
    encoder = _load(args.model)
    output.mkdir(parents=True, exist_ok=True)
    c_values = args.c_values or classification.C_VALUES
    matrix = classification.measure_classification(
        encoder.encode,
        data,
        train_languages=args.train_languages,
        c_values=c_values,
        seed=args.seed,
    )
    described = [{"name": data.name, "path": str(args.data[0]), "sha256": data.fingerprint}]
    settings = {
        "classifier": "logreg",
        "protocol": "zero-shot",
        "c_values": list(c_values),
        "seed": args.seed,
        "selection": matrix.selection,
    }
    if args.pictures:
        _draw_classification(output / f"{data.name}.matrix.png", data.name, matrix)
    _finish(
        args,
        encoder,
        described,
        settings,
        classification.named_scores(data.name, matrix),
        {data.name: matrix.to_dict()},
        [results_lib.classification_table(data.name, matrix)],
        started,
    )


def _add_common(parser: argparse.ArgumentParser, data_help: str, nargs: str | None) -> None:
    parser.add_argument(
        "--model", required=True, help="model directory, workdir, or name of a shipped encoder"
    )
    parser.add_argument("--data", required=True, nargs=nargs or 1, help=data_help)
    parser.add_argument("--output", required=True, metavar="DIR", help="directory of the results")
    parser.add_argument(
        "--languages", type=_words, metavar="CODE,CODE", help="those to measure, in order (all)"
    )
    parser.add_argument(
        "--pictures",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="draw the matrix, and for retrieval PCA and t-SNE",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace existing results")


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _numbers(kind: type) -> Any:
    def parse(text: str) -> tuple:
        values = tuple(kind(word) for word in _words(text))
        if not values or min(values) <= 0:
            raise argparse.ArgumentTypeError(f"must be positive numbers; got {text!r}")
        return values

    parse.__name__ = f"{kind.__name__} list"  # What argparse calls it in an error.
    return parse


def _check_output(args: argparse.Namespace) -> Path:
    """Refuses what can be refused before any work; returns the output directory."""
    output = Path(args.output)
    refuse_existing(output / "results.json", args.overwrite)
    for path in args.data:
        if Path(path).suffix or ":" not in path:
            require_file(path, "--data")
    return output


def _check_names(names: Sequence[str], paths: Sequence[str]) -> None:
    if len(set(names)) < len(names):
        raise UsageError(f"--data: results need different names; {list(paths)} give {list(names)}")


def _load(model: str) -> Encoder:
    import xling_jax

    keep_compiled_programs()
    return xling_jax.load(model)


def _finish(
    args: argparse.Namespace,
    encoder: Encoder,
    data: list[dict],
    settings: dict,
    metrics: dict[str, float],
    matrices: dict[str, dict],
    tables: list[str],
    started: float,
) -> None:
    """Writes results.md and, last, results.json, whose presence means that all is there."""
    from xling_jax.eval import results as results_lib

    output = Path(args.output)
    text = "\n".join(tables)
    results_lib.write_text(output / "results.md", text)
    results_lib.write_results(
        output / "results.json",
        {
            "format_version": 1,
            "task": args.task,
            "model": {"path": str(args.model), "fingerprint": encoder.fingerprint},
            "data": data,
            "settings": settings,
            "versions": results_lib.versions(),
            "seconds": round(time.monotonic() - started, 2),
            "metrics": metrics,
            "matrices": matrices,
        },
    )
    print(text)
    logger.info("results in %s", output)


def _draw_retrieval(
    output: Path,
    encoder: Encoder,
    data: RetrievalData,
    matrix: RetrievalMatrix,
    similarity: str,
    k: int,
) -> None:
    """The heatmap, and the projections of the rows that all languages have."""
    from xling_jax.eval import pictures, retrieval

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
    count = min(NUM_EXAMPLES, len(full))
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


def _draw_classification(path: Path, name: str, matrix: ClassificationMatrix) -> None:
    from xling_jax.eval import pictures

    baseline = matrix.mean("cross", "bag_of_words")
    means = f"cross {100 * matrix.mean('cross'):.1f}, bag of words {100 * baseline:.1f}"
    pictures.draw_matrix(
        path,
        matrix.accuracies["accuracy"],
        matrix.train_languages,
        matrix.test_languages,
        title=f"{name}: zero-shot accuracy, %",
        subtitle=means if matrix.mean("cross") >= 0 else "",
        row_title="train",
        column_title="test",
    )


def _file_hash(path: str) -> str:
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
