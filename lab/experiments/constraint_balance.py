"""How translation and the distance constraint pull at the encoder in the course of a run.

    python lab/experiments/constraint_balance.py runs/t_laser runs/ct_laser

For every stored checkpoint of each workdir (keep them with `--config.train.keep_last=12`), on the
same micro-batches of training text, without dropout:

    n / p        mean distance of a random pair over that of a translation pair. Shrinking all
                 distances alike lowers the constraint while n / p < (1 + 2 w) / 2 w, which is 2 at
                 the published w = λ / β = 1/2.
    inside       share of negatives within the margin
    |source|     mean norm of the sentence vectors of each side, and v, the norm of their mean
    cos pair     mean cosine of translations, and of random pairs
    translation  norm of the gradient of ½ · translation in the encoder's parameters, per token
    positive     of β Σ p / v, relative to that of translation
    negative     of β w / N Σ (…), likewise
    distance     of β · Dist, their sum, likewise
    angle        cosine between the gradients of translation and β · Dist

A run without the constraint is measured with the published one, as if it were added there.

With `--retrieval`, a second table has the distances that retrieval depends on, by the exported
encoder, as means over all directions of each file: n / p as above over all sentences of the file,
and nearest / p, the median of the distance of the nearest wrong sentence over that of the
translation, which must exceed 1 for the translation to be found; and P@1.
"""

import argparse
import dataclasses
import itertools
from pathlib import Path
from typing import Any

import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
from sklearn.metrics.pairwise import euclidean_distances

import xling_jax
from xling_jax.eval.retrieval_data import load_retrieval_data
from xling_jax.losses.distance import distance_constraint, pairwise_distances, squared_distance
from xling_jax.runs.workdir import open_run
from xling_jax.sharding import make_mesh
from xling_jax.train.batches import read_batches
from xling_jax.train.checkpoint import kept_steps, read_params
from xling_jax.train.experiment import Experiment
from xling_jax.train.loop import Corpus, open_batches
from xling_jax.train.step import sharded_shapes
from xling_jax.train.training import VocabFacts, resolve

PUBLISHED = {"weight": 0.25, "negative_weight": 0.5, "margin": 0.5, "num_negatives": 20}
COLUMNS = ("step", "n / p", "inside", "|source|", "|target|", "v", "cos pair", "cos random")
COLUMNS += ("translation", "positive", "negative", "distance", "angle")


def opened(workdir: Path) -> tuple[Experiment, Corpus]:
    """The experiment of a run, with a translation and a distance term, and its data."""
    experiment, vocab = open_run(workdir)
    values = {"objective.translation.weight": 0.5}
    if "distance" not in experiment.terms:
        values["objective.distance"] = PUBLISHED
    return experiment.replace(values), Corpus(str(workdir / "data"), "", VocabFacts.of(vocab))


def measure(workdir: Path, num_batches: int) -> list[dict[str, float]]:
    """One row of `COLUMNS` per stored checkpoint."""
    experiment, corpus = opened(workdir)
    training, mesh = resolve(experiment, corpus.vocab), make_mesh()
    terms, options = training.objective.terms, training.objective.terms["distance"].passed
    beta = terms["distance"].weight
    micro_batches = list(read_batches(open_batches(experiment, corpus), 0, num_batches))

    def gradient_of(weights: dict[str, float], negative_weight: float):
        def loss(params: Any, batch: Any, key: jax.Array) -> jax.Array:
            chosen = {}
            for name, weight in weights.items():
                term = dataclasses.replace(terms[name], weight=weight)
                if name == "distance":
                    given = {**term.passed, "negative_weight": negative_weight}
                    term = dataclasses.replace(term, passed=given)
                chosen[name] = term
            objective = dataclasses.replace(training.objective, terms=chosen)
            return objective(params, batch, key, False)[0]

        return jax.jit(lambda params, batch, key: jax.grad(loss)(params, batch, key)["encoder"])

    weight = options["negative_weight"]
    gradients = {
        "translation": gradient_of({"translation": 0.5}, weight),
        "positive": gradient_of({"distance": beta}, 0.0),
        "distance": gradient_of({"distance": beta}, weight),
    }

    @jax.jit
    def geometry(params: Any, batch: Any, key: jax.Array) -> dict[str, jax.Array]:
        model, pad = training.objective.context.model, corpus.vocab.special_ids["pad"]
        source, target = batch["source_tokens"], batch["target_tokens"]
        mask = (source != pad).any(1) & (target != pad).any(1)
        encode = lambda tokens: model.apply({"params": params}, tokens, True, method="encode")
        a, b = encode(source), encode(target)
        _, metrics = distance_constraint(a, b, mask, key, **options)
        count, rows = mask.sum(), mask.astype(jnp.float32)
        off = rows[:, None] * rows[None] * (1 - jnp.eye(len(mask)))
        unit = lambda x: x / jnp.linalg.norm(x, axis=1, keepdims=True)
        cosine = unit(a) @ unit(b).T
        mean = lambda values: (values * rows).sum() / count
        return {
            "n": (pairwise_distances(a, b) * off).sum() / off.sum(),
            "p": mean(jnp.sqrt(squared_distance(a, b))),
            "inside": metrics["margin_violations"] / count,
            "v": metrics["scale"] / count,
            "|source|": mean(jnp.linalg.norm(a, axis=1)),
            "|target|": mean(jnp.linalg.norm(b, axis=1)),
            "cos pair": mean(jnp.diag(cosine)),
            "cos random": (cosine * off).sum() / off.sum(),
            "tokens": (target != pad).sum(),
        }

    targets = sharded_shapes(mesh, training.shapes)
    rows = []
    for step in kept_steps(workdir / "checkpoints"):
        params = read_params(workdir / "checkpoints", step, targets, corpus.vocab.fingerprint)
        sums = {name: jax.tree.map(jnp.zeros_like, params["encoder"]) for name in gradients}
        found: dict[str, float] = {}
        for number, batch in enumerate(micro_batches):
            batch = {name: jnp.asarray(value) for name, value in batch.items()}
            key = jax.random.key(number)
            for name, value in geometry(params, batch, key).items():
                found[name] = found.get(name, 0.0) + float(value) / num_batches
            for name, function in gradients.items():
                sums[name] = jax.tree.map(jnp.add, sums[name], function(params, batch, key))
        flat = {n: np.asarray(jax.flatten_util.ravel_pytree(g)[0]) for n, g in sums.items()}
        flat["negative"] = flat["distance"] - flat["positive"]
        size = {name: float(np.linalg.norm(g)) for name, g in flat.items()}
        angle = flat["translation"] @ flat["distance"] / (size["translation"] * size["distance"])
        row = {"step": step, "n / p": found["n"] / found["p"], "angle": float(angle)} | found
        row["translation"] = size["translation"] / (found["tokens"] * num_batches)
        for name in ("positive", "negative", "distance"):
            row[name] = size[name] / size["translation"]
        rows.append(row)
    return rows


def nearest(workdir: Path, path: Path) -> tuple[float, float, float]:
    """Means of n / p, nearest / p and P@1, of an exported encoder on a retrieval set."""
    encoder, found = xling_jax.load(workdir), []
    for part in load_retrieval_data(path, encoder.languages).parts:
        vectors = {code: encoder.encode(texts) for code, texts in part.texts.items()}
        for source, target in itertools.permutations(vectors, 2):
            distances = euclidean_distances(vectors[source], vectors[target])
            pair = np.diag(distances).copy()
            random = (distances.sum() - pair.sum()) / (len(pair) - 1) / pair.sum()
            np.fill_diagonal(distances, np.inf)
            wrong = distances.min(axis=1)
            found.append((random, np.median(wrong / pair), np.mean(wrong > pair)))
    return tuple(np.mean(found, axis=0))


def main() -> None:
    """Prints a Markdown table for each workdir, and one of retrieval."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("workdirs", nargs="+", type=Path)
    parser.add_argument(
        "--batches", type=int, default=16, help="micro-batches (default 16; 0: none)"
    )
    parser.add_argument("--retrieval", nargs="+", type=Path, default=(), metavar="FILE")
    args = parser.parse_args()
    for workdir in args.workdirs if args.batches else ():
        print(f"\n{workdir.name}\n\n| {' | '.join(COLUMNS)} |")
        print("| " + " | ".join(["---:"] * len(COLUMNS)) + " |")
        for row in measure(workdir, args.batches):
            cells = [f"{row[name]:.3g}" if name != "step" else f"{row[name]}" for name in COLUMNS]
            print(f"| {' | '.join(cells)} |", flush=True)
    if args.retrieval:
        print("\n| run | set | n / p | nearest / p | P@1 |\n| --- | --- | ---: | ---: | ---: |")
    for workdir, path in itertools.product(args.workdirs, args.retrieval):
        ratio, wrong, found = nearest(workdir, path)
        name = path.name.partition(".tsv")[0]
        print(f"| {workdir.name} | {name} | {ratio:.2f} | {wrong:.3f} | {100 * found:.1f} |")


if __name__ == "__main__":
    main()
