"""Token windows to vectors on the devices of JAX: padded batches, compiled programs, shards.

Every shape of a batch is a program; those that a window needs are compiled in threads.
"""

from __future__ import annotations

import bisect
import collections
import concurrent.futures
import dataclasses
import functools
import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import flax.linen as nn
import flax.traverse_util
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from xling_jax.devices import compute_dtype
from xling_jax.encode.texts import TokenWindow
from xling_jax.options import OptionError
from xling_jax.sharding import rows_over

_CPU_WINDOW_SENTENCES = 8192
# Batches submitted to the device before the oldest is fetched: one runs while the next is packed.
_BATCHES_IN_FLIGHT = 2

# Steps of at most 1.5: padding costs a third at worst and about a tenth on real text.
BUCKET_LENGTHS = (8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048)
BUCKET_LENGTHS += (3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768)

# Batches that are not full come in fewer lengths: they are few, and each shape is a program.
_COARSE_LENGTHS = (16, 32, 64, 128, 256, 512, 1024, 2048)

# For longer inputs the scores of attention, whose number is the square of the length, decide how
# many rows fit into memory.
_LONG = 2048

# Rows for a few sentences.
_FEW = 8


@dataclasses.dataclass(frozen=True)
class BatchShapes:
    """The shapes an encoder may use, of `BUCKET_LENGTHS` below `max_length_tokens`, and of that.

    A full batch has `batch_tokens`, padding included, or `batch_size` rows of any length; the
    number of rows is a multiple of `num_devices`, but `has_single_row` allows one for a sentence
    alone.
    """

    max_length_tokens: int
    batch_tokens: int
    batch_size: int | None = None
    num_devices: int = 1
    has_single_row: bool = False

    @property
    def lengths(self) -> tuple[int, ...]:
        return self._below(BUCKET_LENGTHS)

    def full(self, length: int) -> int:
        """Rows of a full batch of a length."""
        if self.batch_size:
            return self._on_devices(self.batch_size)
        if length > _LONG:
            return self._on_devices(max(1, self.batch_tokens * _LONG // length**2))
        return self._on_devices(max(_FEW, self.batch_tokens // length))

    def partial(self, length: int) -> list[tuple[int, int]]:
        """Smaller (rows, length) for sentences of up to a length, rows increasing."""
        length = self._coarse(length)
        full = self.full(length)
        few = _FEW if length <= _LONG else 1
        rows = {self._on_devices(few)}
        if full // 8 >= 4 * few:
            rows.add(self._on_devices(full // 8))
        return [(number, length) for number in sorted(rows) if number < full]

    def single(self, length: int) -> tuple[int, int]:
        """(1, length) for one sentence alone of up to a length."""
        return (self._on_devices(1), self._coarse(length))

    def all(self, longest: int | None = None) -> list[tuple[int, int]]:
        """Every (rows, length) for inputs up to `longest`, shortest length first."""
        longest = min(longest or self.max_length_tokens, self.max_length_tokens)
        shapes = set()
        for length in self.lengths[: bisect.bisect_left(self.lengths, longest) + 1]:
            shapes.add((self.full(length), length))
            shapes.update(self.partial(length))
            if self.has_single_row:
                shapes.add(self.single(length))
        return sorted(shapes, key=lambda shape: (shape[1], shape[0]))

    def _coarse(self, length: int) -> int:
        """The length of batches that are not full for sentences of up to a length."""
        lengths = self._below((*_COARSE_LENGTHS, *(x for x in BUCKET_LENGTHS if x > _LONG)))
        return next(coarse for coarse in lengths if coarse >= length)

    def _below(self, lengths: Sequence[int]) -> tuple[int, ...]:
        shorter = (length for length in lengths if length < self.max_length_tokens)
        return (*shorter, self.max_length_tokens)

    def _on_devices(self, rows: int) -> int:
        return -(-rows // self.num_devices) * self.num_devices


def plan_batches(
    lengths: np.ndarray, shapes: BatchShapes
) -> Iterator[tuple[np.ndarray, tuple[int, int]]]:
    """Groups sentences into batches, longest first.

    The longest remaining sentence determines the length of a batch. It is a full one if sentences
    of that length fill it by more than half, else the largest partial one that they so fill, unless
    that has more tokens; shorter sentences take the free rows at no cost. `lengths` are [n] int,
    the tokens of each sentence. Yields the indices of some [at most rows], and (rows, length).
    """
    if len(lengths) == 1 and shapes.has_single_row:
        yield np.zeros(1, np.int64), shapes.single(int(lengths[0]))
        return
    order = np.argsort(-lengths, kind="stable")
    buckets = np.searchsorted(shapes.lengths, lengths[order])
    done = 0
    while done < len(order):
        in_bucket = int(np.searchsorted(-buckets, -buckets[done], side="right")) - done
        length = shapes.lengths[buckets[done]]
        shape = full, _ = (shapes.full(length), length)
        if full >= 2 * in_bucket:
            smallest, *others = shapes.partial(length) or [shape]
            partial = max([smallest, *(other for other in others if other[0] < 2 * in_bucket)])
            shape = min(shape, partial, key=math.prod)
        yield order[done : done + shape[0]], shape
        done += shape[0]


class JaxBackend:
    """Runs a Linen module on token windows, batch by batch; see `Backend`.

    `params` may be {} if `with_params` will set them. If they live on a mesh of several devices,
    batches are split over all of them, and every process of the mesh must encode the same text.
    """

    name = "jax"

    def __init__(self, module: nn.Module, params: Any, pad_id: int | None):
        self.module, self.pad_id = module, pad_id
        self.dtype = jnp.dtype(getattr(module, "dtype", jnp.float32)).name
        # Host arrays would be sent to the device with every batch.
        self.params = jax.tree.map(
            lambda leaf: leaf if isinstance(leaf, jax.Array) else jax.device_put(leaf), params
        )
        self._cast = cast_kernels(module, self.params)
        self.num_devices = 1
        self._tokens_sharding = replicated = None
        sharding = getattr(next(iter(jax.tree.leaves(self.params)), None), "sharding", None)
        if isinstance(sharding, NamedSharding) and sharding.mesh.size > 1:
            mesh = sharding.mesh
            self.num_devices = mesh.size
            self._tokens_sharding = NamedSharding(mesh, PartitionSpec(mesh.axis_names))
            replicated = NamedSharding(mesh, PartitionSpec())
        self.apply, self._compiled = _program(module, replicated)

    def with_params(self, params: Any) -> JaxBackend:
        """Returns the same with other parameters; compiled programs are shared."""
        return JaxBackend(self.module, params, self.pad_id)

    @classmethod
    def on_all_devices(cls, module: nn.Module, params: Any, pad_id: int | None) -> JaxBackend:
        """Puts the parameters on all local devices, which then share batches."""
        mesh = Mesh(np.array(jax.local_devices()), ("data",))
        return cls(module, jax.device_put(params, NamedSharding(mesh, PartitionSpec())), pad_id)

    @property
    def window_sentences(self) -> int:
        """Many batches, but limited memory and first wait."""
        return _CPU_WINDOW_SENTENCES if jax.default_backend() == "cpu" else 65536

    def shapes(self, max_length_tokens: int, batch_size: int | None = None) -> BatchShapes:
        """The shapes of batches, for sentences of up to a length."""
        batch_tokens, on_cpu = 65536, jax.default_backend() == "cpu"  # accelerators need many
        if on_cpu:
            # More would leave its caches. Without layers the cost is in the calls.
            batch_tokens = 32768 if getattr(self.module, "layers", None) == 0 else 1024
        return BatchShapes(
            max_length_tokens=max_length_tokens,
            batch_tokens=batch_tokens,
            batch_size=batch_size,
            num_devices=self.num_devices,
            has_single_row=on_cpu and self.num_devices == 1,
        )

    def run_window(
        self,
        window: TokenWindow,
        embeddings: np.ndarray,
        max_length_tokens: int,
        batch_size: int | None = None,
    ) -> int:
        """See `backends.Backend.run_window`."""
        batches = list(
            plan_batches(np.diff(window.offsets), self.shapes(max_length_tokens, batch_size))
        )
        self._compile(shape for _, shape in batches)
        padded_tokens = 0
        in_flight: collections.deque[tuple[np.ndarray, jax.Array]] = collections.deque()
        for members, shape in batches:
            tokens = self._pack(window, members, *shape)
            in_flight.append((members, self.apply(self._cast, tokens)))
            padded_tokens += math.prod(shape)
            if len(in_flight) == _BATCHES_IN_FLIGHT:
                _fetch(in_flight.popleft(), embeddings)
        for batch in in_flight:
            _fetch(batch, embeddings)
        return padded_tokens

    def compile(self, shapes: Iterable[tuple[int, int]]) -> None:
        """Compiles the programs of (rows, length), and runs each once."""
        shapes = list(shapes)
        self._compile(shapes)
        for shape in shapes:
            self.apply(self._cast, self._padding(shape)).block_until_ready()

    def _compile(self, shapes: Iterable[tuple[int, int]]) -> None:
        """Compiles programs that are not yet, several at the same time.

        Only the function itself is run later: JAX then heeds settings of the caller's thread.
        """
        if missing := [shape for shape in dict.fromkeys(shapes) if shape not in self._compiled]:
            lower = lambda shape: self.apply.lower(self._cast, self._padding(shape)).compile()
            # Devices of several processes may have to agree on the order.
            threads = os.cpu_count() if jax.process_count() == 1 else 1
            with concurrent.futures.ThreadPoolExecutor(threads, "xling-compile") as pool:
                list(pool.map(lower, missing))
            self._compiled.update(missing)

    def _padding(self, shape: tuple[int, int]) -> jax.Array:
        empty = TokenWindow(np.empty(0, np.int32), np.zeros(1, np.int64))
        return self._pack(empty, np.empty(0, np.int64), *shape)

    def _pack(self, window: TokenWindow, members: np.ndarray, rows: int, length: int) -> jax.Array:
        tokens = np.full((rows, length), self.pad_id, np.int32)
        starts, stops = window.offsets[members], window.offsets[members + 1]
        index = starts[:, None] + np.arange(length)
        real = index < stops[:, None]
        tokens[: len(members)][real] = window.tokens[index[real]]
        if self._tokens_sharding is None:
            return jax.device_put(tokens)
        # With several processes, too: each has all rows and gives its devices their share.
        return jax.make_array_from_callback(
            tokens.shape, self._tokens_sharding, lambda index: tokens[index]
        )


def cast_kernels(module: nn.Module, params: Any) -> Any:
    """Casts kernels to the encoder's dtype once; every batch would cast them otherwise.

    Those of parts that compute in another dtype, such as a projection in float32, stay as they are.
    """
    if jnp.dtype(getattr(module, "dtype", jnp.float32)) == jnp.float32:
        return params
    parts = _parts_in_its_dtype(module)

    def cast(path: tuple[Any, ...], leaf: jax.Array) -> jax.Array:
        *part, name = (key.key for key in path)
        is_cast = name.endswith("kernel") and tuple(part) in parts
        return leaf.astype(module.dtype) if is_cast else leaf

    return jax.tree_util.tree_map_with_path(cast, params)


@functools.lru_cache(maxsize=16)
def _parts_in_its_dtype(module: nn.Module) -> frozenset[tuple[str, ...]]:
    """Paths of the submodules whose `dtype` is the encoder's, and of the encoder."""
    found = set()

    def note(call: Callable, args: Any, kwargs: Any, context: nn.module.InterceptorContext) -> Any:
        dtype = getattr(context.module, "dtype", None)
        if dtype is not None and jnp.dtype(dtype) == jnp.dtype(module.dtype):
            found.add(context.module.path)
        return call(*args, **kwargs)

    with nn.intercept_methods(note):
        parameter_shapes(module)
    return frozenset(found)


def in_dtype(module: nn.Module, name: str) -> nn.Module:
    """Returns the encoder for computing in a dtype; OptionError if its family takes none."""
    dtype = compute_dtype(name, where="dtype").name
    if hasattr(module, "dtype"):
        return module.clone(dtype=dtype)
    if name not in ("auto", "float32"):
        raise OptionError(f"dtype={name!r}: {type(module).__name__} computes in float32 only")
    return module


def parameter_shapes(module: nn.Module) -> tuple[dict[str, tuple[tuple[int, ...], str]], int]:
    """Returns {name: (shape, dtype)} of an encoder's parameters, and its embedding size."""

    def run(key: jax.Array, tokens: jax.Array) -> tuple[Any, jax.Array]:
        embeddings, variables = module.init_with_output(key, tokens, deterministic=True)
        return variables["params"], embeddings

    tokens = jax.ShapeDtypeStruct((1, 8), jnp.int32)
    params, embeddings = jax.eval_shape(run, jax.random.key(0), tokens)
    flat = flax.traverse_util.flatten_dict(params, sep="/")
    shapes = {name: (value.shape, str(value.dtype)) for name, value in flat.items()}
    return shapes, int(embeddings.shape[-1])


def _fetch(batch: tuple[np.ndarray, jax.Array], embeddings: np.ndarray) -> None:
    members, result = batch
    embeddings[members] = np.asarray(result)[: len(members)]


@functools.lru_cache(maxsize=16)
def _program(
    module: nn.Module, out_sharding: jax.sharding.Sharding | None
) -> tuple[Any, set[tuple[int, int]]]:
    """The jitted function of all encoders of a module, and the shapes that it is compiled for."""
    mesh = getattr(out_sharding, "mesh", None)

    def apply(params: Any, tokens: jax.Array) -> jax.Array:
        with rows_over(mesh):
            embeddings = module.apply({"params": params}, tokens, deterministic=True)
        return embeddings.astype(jnp.float32)

    return jax.jit(apply, out_shardings=out_sharding), set()
