"""Everything needed to judge a device, in about eight minutes, on one page.

    launch/check_device.sh --output check/            # a GPU or TPU: sizes base and paper
    launch/check_device.sh --output check/ --small    # any machine, three minutes

Needs no network, no TensorFlow and no data. Checks vectors and gradients of every family against
this machine's CPU in float32; measures updates and encoding with the share of the device's peak,
fused against plain attention, exact search, and whether the input keeps up; and writes
OUTPUT/README.md with two plots. PyTorch, if it is installed, trains T-LASER in turns with ours on
the same tokens: compiled and eager, with each output layer and attention that it has; transformers
encodes with published sizes in turns with ours. Dropout uses
`dropout_generator="hash"`. Programs of a part are compiled side by side, before any of them is
timed. Parts run in the order of what is worth most; those that would begin after `--minutes` are
named on the page. A part that fails says so there, and the others run; the exit status is then 1.
"""

import argparse
import concurrent.futures
import contextlib
import dataclasses
import datetime
import functools
import importlib.util
import itertools
import math
import os
import shlex
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from interleaved import markdown_table
from train_step import PAD, make_batch

from xling_jax import products

# Row of the page -> config and argument, without the size.
UPDATES = {
    "T-LASER": "t_laser:",
    "cT-LASER": "ct_laser:",
    "LASER_1": "laser:layers=1,",
    "LASER_6": "laser:layers=6,",
    "lightweight": "lightweight:",
    "static": "static:",
}
# Family -> settings of the encoder whose vectors and gradients are compared.
ENCODERS = {
    "tlaser": {"width": 64, "layers": 2, "heads": 4, "ffn_width": 128},
    "laser": {"width": 32, "layers": 2},
    "dual": {"width": 64, "layers": 2, "heads": 4, "ffn_width": 128},
    "static": {"width": 64},
    "bert": {"width": 64, "layers": 2, "heads": 4, "ffn_width": 128},
    "rotary": {"width": 64, "layers": 2, "heads": 4, "ffn_width": 128},
}
# Largest 1 - cosine to the vectors of the CPU in float32. TF32 and products of a TPU keep 10 and
# 7 bits of a fraction, as float16 and bfloat16 do.
TOLERANCES = {"float32": 1e-4, "bfloat16": 1e-3, "float16": 1e-4}
LENGTH = 32
# Name of a PyTorch peer -> mode of torch.compile, output loss, whether attention is masked.
PEERS = {
    "compiled, chunked loss": ("max-autotune-no-cudagraphs", "chunked_loss", True),
    "compiled, Liger's loss": ("max-autotune-no-cudagraphs", "liger_loss", True),
    "compiled, chunked loss, rows of one length": (
        "max-autotune-no-cudagraphs",
        "chunked_loss",
        False,
    ),
    "compiled, plain loss": ("max-autotune-no-cudagraphs", "plain_loss", True),
    "compiled with CUDA graphs, plain loss": ("max-autotune", "plain_loss", True),
    "eager, chunked loss": (None, "chunked_loss", True),
}


@dataclasses.dataclass
class Form:
    """How large the measurements are.

    Attributes:
        sizes: of the configs.
        tokens: of a side of a batch.
        updates: that are timed.
        rows: of both sides of the exact search.
        lengths: of attention.
        peers: of `PEERS`, to be timed.
        encoders: published sizes, of `huggingface.SIZES`, to be timed.
        deadline_s: `time.monotonic()` after which no further measurement begins.
        late: whether there was no time for a measurement.
    """

    sizes: tuple[str, ...]
    tokens: int
    updates: int
    rows: int
    lengths: tuple[int, ...]
    peers: tuple[str, ...]
    encoders: tuple[str, ...]
    deadline_s: float
    late: bool = False

    def all_of(self, items: Iterable[Any]) -> Iterator[Any]:
        """Yields items until the time is up."""
        for item in items:
            if time.monotonic() > self.deadline_s:
                self.late = True
                return
            yield item


def side_by_side(jobs: Mapping[Any, Callable[[], Any]]) -> dict[Any, Any]:
    """The results of jobs that mostly wait for compilers, which run outside of Python."""
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        return dict(zip(jobs, pool.map(lambda job: job(), jobs.values())))


def seconds_of(run: Callable[[], Any]) -> float:
    """Seconds of a call until its result is there."""
    start = time.perf_counter()
    jax.block_until_ready(run())
    return time.perf_counter() - start


def median_seconds(run: Callable[[], Any], repeats: int) -> float:
    """Seconds of a call until its result is there, after one that compiles."""
    seconds_of(run)
    return statistics.median(seconds_of(run) for _ in range(repeats))


def memory_gb(program: Any) -> str:
    """What a compiled program holds on the device at its peak: arguments, results, temporaries."""
    of = program.memory_analysis()
    if of is None:
        return "unknown"
    shared = of.alias_size_in_bytes  # donated arguments, which become results
    total = of.argument_size_in_bytes + of.output_size_in_bytes + of.temp_size_in_bytes - shared
    return f"{total / 1e9:.2f}"


@functools.cache
def peak(dtype: str) -> float:
    """FLOP/s of products on a device, from its data sheet or measured."""
    from peaks import peak_flops

    size = 1536
    matrix = jnp.ones((size, size), dtype) / size
    seconds = lambda: median_seconds(functools.partial(jax.jit(jnp.matmul), matrix, matrix), 3)
    return peak_flops(jax.devices()[0], dtype) or 2 * size**3 / seconds()


def device_facts(form: Form) -> tuple[str, bool]:
    """The device, and its rates of matrix products."""
    device, rows = jax.devices()[0], []
    size = 1024 if device.platform == "cpu" else 8192
    for dtype in TOLERANCES:
        matrix = jnp.ones((size, size), dtype) / size
        seconds = median_seconds(functools.partial(jax.jit(jnp.matmul), matrix, matrix), 5)
        rate, limit = 2 * size**3 / seconds, peak(dtype)
        rows.append((dtype, f"{rate / 1e12:.2f}", f"{limit / 1e12:.2f}", f"{rate / limit:.0%}"))
    header = ("products in", "measured TFLOP/s", "peak used below", "share")
    text = f"{len(jax.devices())} × {device.device_kind}, jax {jax.__version__}\n\n"
    return text + markdown_table(header, rows), True


def build_small(family: str, dtype: str) -> Any:
    """An encoder of `ENCODERS`."""
    from xling_jax.models.registry import build_encoder

    settings = ENCODERS[family] | ({"dtype": dtype} if family != "static" else {})
    return build_encoder(family, vocab_size=512, pad_id=PAD, **settings)


def correctness(form: Form) -> tuple[str, bool]:
    """Vectors and gradients of every family beside those of the CPU in float32."""
    tokens = make_batch(16, 24, 512)["source_tokens"]
    expected = side_by_side({f: functools.partial(on_cpu, f, tokens) for f in ENCODERS})
    jobs = {}
    for family, (params, _) in expected.items():
        dtypes = [*TOLERANCES] if family != "static" else ["float32"]
        if jax.default_backend() == "cpu":  # which cannot sum products of float16 in float32
            dtypes = [dtype for dtype in dtypes if dtype != "float16"]
        on_device = jax.device_put(params, jax.devices()[0])
        for dtype in dtypes:
            arguments = build_small(family, dtype), on_device, tokens
            jobs[family, dtype] = functools.partial(vectors_and_gradient, *arguments)
    rows, right = [], True
    for (family, dtype), found in side_by_side(jobs).items():
        losses = [1 - cosine(*sides) for sides in zip(found, expected[family][1])]
        ok = losses[0] < TOLERANCES[dtype] and losses[1] < 20 * TOLERANCES[dtype]
        right &= ok
        row = (family, dtype, f"{losses[0]:.1e}", f"{losses[1]:.1e}")
        rows.append((*row, "yes" if ok else "**no**"))
    header = ("family", "dtype", "1 - cosine of vectors", "of the gradient", "right")
    return markdown_table(header, rows), right


def on_cpu(family: str, tokens: np.ndarray) -> tuple[Any, tuple[np.ndarray, ...]]:
    """Random parameters, and `vectors_and_gradient` of the CPU in float32."""
    with jax.default_device(jax.devices("cpu")[0]):
        module = build_small(family, "float32")
        params = jax.jit(module.init)(jax.random.key(0), tokens)["params"]
        return params, vectors_and_gradient(module, params, tokens)


def vectors_and_gradient(module: Any, params: Any, tokens: np.ndarray) -> tuple[np.ndarray, ...]:
    """[batch, dim] and [1, parameters], in float64, of the loss of fixed random directions."""
    random = np.random.default_rng(0)

    def loss(params: Any) -> tuple[jax.Array, jax.Array]:
        vectors = module.apply({"params": params}, tokens, deterministic=True)
        vectors = vectors.astype(jnp.float32)
        unit = vectors / jnp.linalg.norm(vectors, axis=1, keepdims=True)
        return (unit * random.standard_normal(unit.shape).astype(np.float32)).sum(), vectors

    gradient, vectors = jax.jit(jax.grad(loss, has_aux=True))(params)
    flat = [np.asarray(leaf, np.float64).ravel() for leaf in jax.tree.leaves(gradient)]
    return np.asarray(vectors, np.float64), np.concatenate(flat)[None]


def cosine(found: np.ndarray, expected: np.ndarray) -> float:
    """The lowest cosine of a row of one to that of the other."""
    norms = np.linalg.norm(found, axis=1) * np.linalg.norm(expected, axis=1)
    return float(((found * expected).sum(axis=1) / norms).min())


def updates(form: Form) -> tuple[str, bool]:
    """Updates of every family in the device's own dtype."""
    jobs = {
        f"{name} {size}": functools.partial(Update, config, size, form)
        for size in form.sizes
        for name, config in UPDATES.items()
        if name != "static" or size == form.sizes[0]
    }
    if products.kernels_for(jnp.bfloat16):
        arguments = UPDATES["T-LASER"], form.sizes[0], form, False
        jobs[f"T-LASER {form.sizes[0]}, XLA alone"] = functools.partial(Update, *arguments)
    rows = [(name, *update.measure()) for name, update in form.all_of(side_by_side(jobs).items())]
    header = ("update", "dtype", "ms", "tokens/s", "share of peak", "compiled in s", "GB")
    return markdown_table(header, rows), True


def load(config: str, size: str) -> Any:
    """An experiment without accumulation, and with cheap dropout."""
    from xling_jax import config as config_lib

    if config == UPDATES["static"]:  # which has one size that is real
        size = "paper"
    values = {"data.accumulation_steps": 1, "dropout_generator": "hash"}
    return config_lib.load(f"{config}{size}").replace(values)


class Update:
    """The compiled update of a config, and its batch.

    Args:
        name, size: see `load`.
        form: of the measurement.
        kernels: whether to use `xling_jax.kernels` where training would.
    """

    def __init__(self, name: str, size: str, form: Form, kernels: bool = True):
        with contextlib.nullcontext() if kernels else products.without_kernels():
            self._compile(name, size, form)

    def _compile(self, name: str, size: str, form: Form) -> None:
        from peaks import without_remat

        from xling_jax.devices import compute_dtype
        from xling_jax.sharding import make_mesh, state_sharding, to_global
        from xling_jax.train.batch_plan import Bucket
        from xling_jax.train.dry_run import gradient_flops
        from xling_jax.train.training import resolve

        experiment, self.form = load(name, size), form
        mesh = make_mesh()
        training = resolve(experiment)
        steps = training.steps(mesh)
        rows = form.tokens // LENGTH
        needed = training.objective.abstract_batch(Bucket(LENGTH, rows), both=False)
        tokens = make_batch(rows, LENGTH, experiment.preparation.vocab.size)
        arrays = {n: tokens.get(n, np.zeros(s.shape, s.dtype)) for n, s in needed.items()}
        self.batch = to_global(mesh, arrays)
        objective = without_remat(training.objective)
        self.flops = gradient_flops(objective, training.shapes.params, self.batch)
        self.dtype = compute_dtype(experiment.compute_dtype).name
        sharding = state_sharding(mesh, training.shapes)
        self.init = jax.jit(training.init, out_shardings=sharding).lower().compile()
        start = time.perf_counter()
        self.program = steps.train.lower(training.shapes, self.batch, np.int32(0)).compile()
        self.compiled_s = time.perf_counter() - start

    def start(self) -> Callable[[], None]:
        """A function that does the updates of one measurement and waits for them."""
        state, index = self.init(), 0

        def run() -> None:
            nonlocal state, index
            for _ in range(self.form.updates):
                index += 1
                state, _ = self.program(state, self.batch, np.int32(index))
            jax.block_until_ready(state)

        return run

    def measure(self) -> tuple[str, ...]:
        """Dtype, milliseconds, tokens/s, share of the peak, seconds to compile, memory."""
        seconds = median_seconds(self.start(), 3) / self.form.updates
        limit = peak(self.dtype) * len(jax.devices())
        rate, share = 2 * self.form.tokens / seconds, self.flops / seconds / limit
        numbers = f"{seconds * 1e3:.1f}", f"{rate:,.0f}", f"{share:.0%}", f"{self.compiled_s:.0f}"
        return self.dtype, *numbers, memory_gb(self.program)


def peers(form: Form) -> tuple[str, bool]:
    """T-LASER's updates in turns with PyTorch's, on the same tokens."""
    if not importlib.util.find_spec("torch"):
        return "PyTorch is not installed.", True
    rows = []
    for size in form.sizes:
        ours = Update(UPDATES["T-LASER"], size, form)
        run = ours.start()
        run()
        for name in form.all_of(form.peers):
            try:
                start = time.perf_counter()
                theirs, torch_gb = torch_updates(size, form, *PEERS[name])
                theirs()
                compiled_s = time.perf_counter() - start
                seconds = [[seconds_of(turn) for turn in (run, theirs)] for _ in range(5)]
                mine, other = np.median(seconds, axis=0) / form.updates * 1e3
                cells = f"{mine:.1f}", f"{other:.1f}", f"{other / mine:.2f}", f"{compiled_s:.0f}"
                rows.append((size, name, *cells, torch_gb()))
            except Exception as error:  # no such package, no memory, a compiler that gives up
                why = f"{type(error).__name__}: {str(error).strip().splitlines()[:1]}"
                rows.append((size, name, f"no: {why:.80}", "", "", "", ""))
    header = ("size", f"PyTorch, {form.tokens:,} tokens", "ours, ms", "theirs, ms", "ratio")
    return markdown_table((*header, "theirs compiled in s", "theirs, GB"), rows), True


def torch_updates(
    size: str, form: Form, compile_mode: str | None, loss: str, masked: bool
) -> tuple[Callable[[], None], Callable[[], str]]:
    """As `Update.start`, of PyTorch; and a function that tells its peak of memory."""
    import torch
    import torch_tlaser

    experiment = load(UPDATES["T-LASER"], size)
    where = "cuda" if torch.cuda.is_available() else "cpu"
    half = where == "cuda" and torch.cuda.is_bf16_supported()
    if where == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    model = torch_tlaser.of_experiment(experiment).to(where)
    model.masked, model.output_loss = masked, getattr(torch_tlaser, loss)
    trainer = torch_tlaser.Trainer(model, compile_mode=compile_mode)
    batch = make_batch(form.tokens // LENGTH, LENGTH, experiment.preparation.vocab.size)
    names = ("source_tokens", "target_tokens", "target_language")
    arrays = [torch.from_numpy(batch[name]).long().to(where) for name in names]

    def run() -> None:
        with torch.autocast(where, torch.bfloat16, enabled=half):
            for _ in range(form.updates):
                trainer.step(*arrays)
        if where == "cuda":
            torch.cuda.synchronize()

    memory = lambda: (
        f"{torch.cuda.max_memory_allocated() / 1e9:.2f}" if where == "cuda" else "unknown"
    )
    return run, memory


def encoding(form: Form) -> tuple[str, bool]:
    """Batches of the configs' encoders in float32 and the device's fastest dtype."""
    from xling_jax.devices import compute_dtype

    jobs = {}
    for size in form.sizes:
        for name in UPDATES:
            if name == "cT-LASER" or name == "static" and size != form.sizes[0]:
                continue  # the encoder of T-LASER; the same at every size
            dtypes = dict.fromkeys(("float32", compute_dtype("auto").name))
            for dtype in dtypes if name != "static" else ("float32",):
                jobs[name, size, dtype] = functools.partial(
                    compile_encoder, name, size, dtype, form
                )
    rows = []
    for (name, size, dtype), (apply, init, tokens, flops) in form.all_of(
        side_by_side(jobs).items()
    ):
        params = init()
        seconds = median_seconds(functools.partial(apply, params, tokens), 5)
        share = flops / seconds / peak(dtype)
        rate = f"{form.tokens / seconds:,.0f}"
        rows.append((f"{name} {size}", dtype, f"{seconds * 1e3:.2f}", rate, f"{share:.0%}"))
    header = ("encoding", "dtype", "ms", "tokens/s", "share of peak")
    return markdown_table(header, rows), True


def compile_encoder(name: str, size: str, dtype: str, form: Form) -> tuple[Any, ...]:
    """A compiled encoder, a function that makes its parameters, a batch, and its FLOPs."""
    from xling_jax.models.registry import build_encoder
    from xling_jax.train.dry_run import matmul_flops

    experiment = load(UPDATES[name], size)
    vocab_size = experiment.preparation.vocab.size
    settings = {**experiment.config["encoder"], "vocab_size": vocab_size, "pad_id": PAD}
    family = settings.pop("family")
    tokens = make_batch(form.tokens // LENGTH, LENGTH, experiment.preparation.vocab.size)[
        "source_tokens"
    ]
    module = build_encoder(family, **settings, **({"dtype": dtype} if family != "static" else {}))
    init = jax.jit(lambda: module.init(jax.random.key(0), tokens[:1])["params"])
    apply = jax.jit(lambda params, tokens: module.apply({"params": params}, tokens))
    shapes = jax.eval_shape(init)
    flops = matmul_flops(apply, shapes, tokens)
    return apply.lower(shapes, tokens).compile(), init.lower().compile(), tokens, flops


def encoder_peers(form: Form) -> tuple[str, bool]:
    """Published encoders in turns with transformers and its SDPA, as in sentence-transformers."""
    if not (importlib.util.find_spec("torch") and importlib.util.find_spec("transformers")):
        return "PyTorch or transformers is not installed.", True
    import huggingface
    import torch

    from xling_jax.devices import compute_dtype

    dtype, rows = compute_dtype("auto").name, []
    where = "cuda" if torch.cuda.is_available() else "cpu"
    for size in form.encoders:
        model = huggingface.torch_model(size, huggingface.VOCAB_SIZE)
        model = model.to(where, getattr(torch, dtype))
        modes = {"eager": model, "compiled": torch.compile(model, mode="max-autotune")}
        for length, mode in form.all_of(itertools.product((32, 128), modes)):
            tokens = make_batch(form.tokens // length, length, huggingface.VOCAB_SIZE)
            runs = (
                our_encoder(size, dtype, tokens["source_tokens"]),
                torch_encoder(modes[mode], where, tokens["source_tokens"]),
            )
            try:
                for run in runs:
                    run()
                seconds = [[seconds_of(run) for run in runs] for _ in range(5)]
                ours, theirs = np.median(seconds, axis=0) * 1e3
                cells = f"{ours:.1f}", f"{theirs:.1f}", f"{theirs / ours:.2f}"
            except Exception as error:  # no memory, or a compiler that gives up
                cells = "", f"no: {type(error).__name__}: {str(error).strip():.60}", ""
            rows.append((f"{size}, {length} tokens", mode, *cells))
    header = (f"{form.tokens:,} tokens in {dtype}", "transformers")
    return markdown_table((*header, "ours, ms", "theirs, ms", "ratio"), rows), True


def our_encoder(size: str, dtype: str, tokens: np.ndarray) -> Callable[[], Any]:
    """A function that encodes a batch with random weights."""
    import huggingface

    from xling_jax.models.registry import build_encoder

    sizes = huggingface.SIZES[size] | {"vocab_size": huggingface.VOCAB_SIZE, "pad_id": PAD}
    module = build_encoder("bert", **sizes, dtype=dtype)
    params = jax.jit(module.init)(jax.random.key(0), tokens[:1])["params"]
    apply = jax.jit(lambda params, tokens: module.apply({"params": params}, tokens))
    return functools.partial(apply, params, jax.device_put(tokens))


def torch_encoder(model: Any, where: str, tokens: np.ndarray) -> Callable[[], None]:
    """A function that encodes a batch, mean-pools it, and waits for the result."""
    import torch

    ids = torch.from_numpy(tokens).long().to(where)
    mask = (ids != PAD).long()

    def run() -> None:
        with torch.inference_mode():
            states = model(input_ids=ids, attention_mask=mask).last_hidden_state
            (states * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
        if where == "cuda":
            torch.cuda.synchronize()

    return run


def attention(form: Form) -> tuple[str, bool]:
    """Fused attention against the plain one, forward and backward, 16 heads of 64, in bfloat16."""
    rows, heads, size = [], 16, 64
    kernels = products.kernels_for(jnp.bfloat16)
    dtype = jnp.bfloat16 if jax.default_backend() != "cpu" else jnp.float32
    for length in form.all_of(form.lengths):
        shape = (max(1, form.tokens // length), length, heads, size)
        x = jax.random.normal(jax.random.key(0), shape, dtype)
        cells = []
        for way in ("xla", "cudnn", "kernel"):
            if way == "kernel" and not (kernels and length <= kernels.LONGEST):
                cells.append("")
                continue

            def loss(x: jax.Array, way: str = way) -> jax.Array:
                if way == "kernel":
                    rows_of_heads = (x.reshape(*x.shape[:2], -1),) * 3
                    mask = jnp.ones((1, 1, x.shape[1]), bool)
                    attended = kernels.attention(*rows_of_heads, mask, heads)
                else:
                    attended = jax.nn.dot_product_attention(x, x, x, implementation=way)
                return attended.astype(jnp.float32).sum()

            try:
                seconds = median_seconds(functools.partial(jax.jit(jax.grad(loss)), x), 5)
                cells.append(f"{seconds * 1e3:.2f}")
            except Exception as error:  # jax raises many kinds where there is no cuDNN
                cells.append(f"no: {str(error).splitlines()[0]:.60}")
        rows.append((length, *cells))
    return markdown_table(("length", "plain, ms", "cuDNN, ms", "kernel, ms"), rows), True


def search(form: Form) -> tuple[str, bool]:
    """Exact neighbors both ways, and that they are NumPy's."""
    from xling_jax.align import knn

    random, dim = np.random.default_rng(0), 1024
    x, y = (knn.normalize(random.standard_normal((form.rows, dim))) for _ in range(2))
    sample = slice(0, 500)
    expected = knn.top_k(x[sample], y, 4, backend="numpy")[1]
    right = bool((knn.top_k(x[sample], y, 4, backend="jax")[1] == expected).all())
    settings = {"memory_mb": 2048, "backend": "jax"}
    seconds = median_seconds(lambda: knn.top_k_both_ways(x, y, 4, **settings), 2)
    rate = 2 * form.rows**2 * dim / seconds
    share = rate / (peak("float32") * len(jax.devices()))
    row = (f"{form.rows:,} × {form.rows:,} × {dim}", f"{seconds:.2f}", f"{rate / 1e12:.2f}")
    header = ("search both ways", "s", "TFLOP/s", "share of float32's peak", "neighbors of NumPy")
    return markdown_table(header, [(*row, f"{share:.0%}", "yes" if right else "**no**")]), right


def input_rate(form: Form) -> tuple[str, bool]:
    """Tokens that the reader without TensorFlow delivers; above is what an update consumes."""
    from input_pipeline import count_tokens, open_pairs, write_corpus

    from xling_jax.train.batches import read_batches

    experiment = load(UPDATES["T-LASER"], form.sizes[0])
    count = 200
    with tempfile.TemporaryDirectory() as directory:
        write_corpus(Path(directory), 50_000, experiment.preparation.vocab.size)
        batches = open_pairs(directory, experiment, ["de-en"])
        start = time.perf_counter()
        tokens = sum(map(count_tokens, read_batches(batches, 0, count, reader="numpy")))
        seconds = time.perf_counter() - start
    row = (f"{count / seconds:,.0f}", f"{tokens / seconds:,.0f}")
    return markdown_table(("batches/s", "real tokens/s, both sides"), [row]), True


PARTS = {
    "Device": device_facts,
    "Correctness": correctness,
    "Updates": updates,
    "Peer": peers,
    "Encoding": encoding,
    "Encoder peer": encoder_peers,
    "Attention": attention,
    "Exact search": search,
    "Input": input_rate,
}


def draw(table: str, title: str, path: Path) -> None:
    """Draws the column "share of peak" of a Markdown table as bars."""
    from matplotlib.figure import Figure

    header, _, *lines = (
        [cell.strip() for cell in line.strip("| ").split("|")] for line in table.splitlines()
    )
    column = header.index("share of peak")
    lines = [line for line in lines if len(line) > column and line[column].endswith("%")]
    figure = Figure(figsize=(7, 0.35 * len(lines) + 1.2), layout="constrained")
    axes = figure.subplots()
    shares = [float(line[column].rstrip("%")) for line in lines]
    bars = axes.barh([f"{line[0]}, {line[1]}" for line in lines], shares)
    axes.bar_label(bars, fmt="%.0f %%", padding=3)
    axes.invert_yaxis()
    axes.set_xlim(0, max([100, *shares]) * 1.1)
    axes.set_xlabel("share of peak FLOP/s, %")
    axes.set_title(title)
    figure.savefig(path, dpi=120)


def main() -> int:
    """Runs all parts and writes the page; 1 if any of them failed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, required=True, help="directory of the page")
    parser.add_argument("--small", action="store_true", help="for a CPU, or to try it")
    parser.add_argument("--minutes", type=float, default=7.5, help="begin nothing after that")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=[*PARTS])
    args = parser.parse_args()
    deadline_s = time.monotonic() + 60 * args.minutes
    memory = (jax.devices()[0].memory_stats() or {}).get("bytes_limit", 0)  # JAX's share of it
    # The paper's update of T-LASER is 131,072 tokens.
    tokens = 131_072 if memory > 100e9 else 65_536 if memory > 40e9 else 16_384
    lengths, published = (32, 128, 512, 2048), ("base", "minilm")
    form = Form(("paper", "base"), tokens, 5, 100_000, lengths, (*PEERS,), published, deadline_s)
    if args.small:
        form = Form(
            ("small",), 1024, 2, 4_000, (64,), ("eager, chunked loss",), ("tiny",), deadline_s
        )
    args.output.mkdir(parents=True, exist_ok=True)
    begun, failed, page = time.monotonic(), [], ["# Device check\n"]
    flags = os.environ.get("XLA_FLAGS", "")
    command = f"XLA_FLAGS={shlex.quote(flags)} " if flags else ""
    command += shlex.join(["launch/check_device.sh", *sys.argv[1:]])
    page.append(f"{datetime.date.today()}, `{command}`\n")
    for name in args.parts:
        start = time.monotonic()
        try:
            if start > deadline_s:
                raise TimeoutError("no time left")
            text, right = PARTS[name](form)
            if form.late:
                text, right = f"{text}\n\nNo time left for the others.", False
        except Exception as error:  # the other parts are worth having
            text, right = f"**failed**: {type(error).__name__}: {str(error):.500}", False
        if not right:
            failed.append(name)
        page.append(f"## {name}\n\n{text}\n")
        if "share of peak" in text:
            picture = f"{name.lower()}.png"
            draw(text, name, args.output / picture)
            page.append(f"![{name}]({picture})\n")
        print(f"{name}: {'done' if right else 'FAILED'} in {time.monotonic() - start:.0f} s")
        (args.output / "README.md").write_text("\n".join(page))
    minutes = math.ceil((time.monotonic() - begun) / 6) / 10
    page.append(
        f"{minutes} minutes. "
        + (f"Failed: {', '.join(failed)}." if failed else "All parts passed.")
    )
    (args.output / "README.md").write_text("\n".join(page) + "\n")
    print(f"{args.output / 'README.md'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
