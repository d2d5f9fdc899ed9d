"""Speed of the static encoder on a CPU: updates, and text to vectors.

    python benchmarks/static.py
    python benchmarks/static.py --task encode --model runs/static --text FILE.tsv.gz

`train` is forward pass, in-batch contrastive loss on 1,024 pairs, backward pass and Adam over a
table of 32,000 x 512, with sentences of 16 and 32 tokens. It compares summing table rows position
by position (`weighted_bag`) with the plain form, each with small and large memory pages (see
`cli.main`). `encode` is `Encoder.encode` including tokenization, in sentences per second. The
contestants run in separate processes and take turns.
"""

import argparse
import os
import sys

import interleaved
import numpy as np

PAIRS, VOCAB_SIZE, WIDTH = 1024, 32_000, 512
FORMS, PAGES, LENGTHS = ("plain", "bag"), ("small", "large"), (16, 32)
TUNABLES = {"small": "glibc.malloc.hugetlb=0", "large": "glibc.malloc.hugetlb=1"}


def train_worker(form: str, length: int) -> None:
    """Serves turns of five updates."""
    import functools

    import jax
    import jax.numpy as jnp
    import optax

    from xling_jax.losses.contrastive import alignment_loss
    from xling_jax.models.layers import weighted_bag

    random = np.random.default_rng(0)
    frequencies = 1 / np.arange(10, VOCAB_SIZE + 10)
    shape = (2 * PAIRS, length)
    tokens = random.choice(VOCAB_SIZE, shape, p=frequencies / frequencies.sum()).astype(np.int32)
    plain = lambda table, weights, tokens: jnp.einsum("bl,blw->bw", weights, table[tokens])
    pool = weighted_bag if form == "bag" else plain
    optimizer = optax.adam(5e-3)
    params = {
        "table": jnp.asarray(random.normal(0, 0.05, (VOCAB_SIZE, WIDTH)), jnp.float32),
        "weight": jnp.ones(VOCAB_SIZE),
    }
    state = optimizer.init(params)

    def loss(params, tokens):
        vectors = pool(params["table"], params["weight"][tokens] / length, tokens)
        mask = jnp.ones(PAIRS, bool)
        options = {"similarity": "cosine", "scale": 20.0}
        return alignment_loss(vectors[0::2], vectors[1::2], mask, **options)[0] / PAIRS

    @functools.partial(jax.jit, donate_argnums=(0, 1))
    def update(params, state, tokens):
        value, gradient = jax.value_and_grad(loss)(params, tokens)
        changes, state = optimizer.update(gradient, state)
        return optax.apply_updates(params, changes), state, value

    def run() -> dict[str, float]:
        nonlocal params, state
        for _ in range(5):
            params, state, value = update(params, state, tokens)
        return {"loss": float(value)}

    run()
    interleaved.serve(run, {})


def encode_worker(model: str, text: str, column: int, count: int) -> None:
    """Serves encodings of a text."""
    import gzip
    import itertools

    import xling_jax

    with gzip.open(text, "rt", encoding="utf-8") as lines:
        rows = (line.rstrip("\n").split("\t") for line in itertools.islice(lines, 1, count + 1))
        sentences = [row[column] for row in rows]
    encoder = xling_jax.load(model)
    run = lambda: {"norm": float(np.linalg.norm(encoder.encode(sentences)))}
    run()
    tokens = int(encoder.vocab.encode_flat(sentences)[1].sum())
    interleaved.serve(run, {"sentences": len(sentences), "tokens": tokens})


def main() -> None:
    """Runs the workers in turns and prints a Markdown table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--task", choices=("train", "encode"), default="train")
    parser.add_argument("--model", help="for encode: a trained encoder")
    parser.add_argument("--text", help="for encode: a TSV with a header, .gz")
    parser.add_argument("--column", type=int, default=0)
    parser.add_argument("--sentences", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        form, pages, length = args.worker.split("/")
        if os.environ.get("GLIBC_TUNABLES") != TUNABLES[pages]:
            os.environ["GLIBC_TUNABLES"] = TUNABLES[pages]  # read only when a process starts
            os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
        if args.task == "train":
            train_worker(form, int(length))
        else:
            encode_worker(args.model, args.text, args.column, args.sentences)
        return

    options = ["--task", args.task]
    for name in ("model", "text", "column", "sentences"):
        if getattr(args, name) is not None:
            options += [f"--{name}", str(getattr(args, name))]
    names = [f"{form}/{pages}/{n}" for n in LENGTHS for form in FORMS for pages in PAGES]
    if args.task == "encode":
        names = [f"encode/{pages}/0" for pages in PAGES]
    arguments = {name: [*options, "--worker", name] for name in names}
    numbers, facts = interleaved.take_turns(__file__, arguments, args.rounds)
    rows = []
    for name in names:
        seconds = interleaved.median(numbers[name])
        items = facts[name].get("sentences", 5 * PAIRS)
        first = next(n for n in names if n.split("/")[2] == name.split("/")[2])
        ratio = interleaved.ratio(numbers[first], numbers[name])
        peak = interleaved.median(numbers[name], "peak_mb")
        rows.append((name, f"{items / seconds:,.0f}", f"{ratio:.2f}", f"{peak:,.0f}"))
    unit = "pairs/s" if args.task == "train" else "sentences/s"
    print(f"{args.task}. {interleaved.circumstances()}, {args.rounds} rounds")
    if args.task == "encode":
        per_sentence = facts[names[0]]["tokens"] / facts[names[0]]["sentences"]
        print(f"{per_sentence:.1f} tokens per sentence")
    print()
    header = ("form / pages / tokens", unit, "speedup over the first", "peak MB")
    print(interleaved.markdown_table(header, rows))


if __name__ == "__main__":
    main()
