"""Workers of benchmarks that encode batches of tokens with the library's encoders, float32.

`numpy` is what `xling_jax.load` runs on a CPU: without padding, batches in threads. `jax` runs the
padded batch in one compiled program, as on an accelerator. Its matrix products include those of the
padding; those of `numpy` do not.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any

import interleaved
import numpy as np

LIBRARIES = ("jax", "numpy")


def serve_encoder(
    library: str, family: str, sizes: dict[str, Any], tokens: np.ndarray, batches: int = 1
) -> None:
    """Serves turns of an encoder with random weights.

    Args:
        library: of `LIBRARIES`; `jax/bfloat16` computes in that dtype.
        family: of the encoder.
        sizes: arguments of `build_encoder`.
        tokens: [rows, length], padded on the right.
        batches: how often they are encoded in a turn.
    """
    import jax
    import jax.numpy as jnp

    from xling_jax.encode.jax_backend import cast_kernels
    from xling_jax.models.registry import build_encoder
    from xling_jax.train.dry_run import matmul_flops

    library, _, dtype = library.partition("/")
    module = build_encoder(family, **sizes).clone(dtype=jnp.dtype(dtype or "float32"))
    params = jax.jit(module.init)(jax.random.key(0), tokens[:1, :4])["params"]
    params = cast_kernels(module, params)  # as `load` does
    apply = jax.jit(lambda params, tokens: module.apply({"params": params}, tokens))
    shape = (interleaved.YARDSTICK_SIZE,) * 2
    if library == "jax":
        encode = lambda: np.asarray(apply(params, jax.device_put(tokens)))
        count = matmul_flops(apply, params, tokens)
        matrix, product = jnp.full(shape, 1e-3, jnp.float32), jax.jit(jnp.matmul)
        yardstick = lambda: product(matrix, matrix).block_until_ready()
    else:
        encode = _numpy_encode(family, sizes, jax.device_get(params), tokens, module.pad_id)
        lengths = Counter((tokens != module.pad_id).sum(1).tolist())
        count = sum(n * matmul_flops(apply, params, tokens[:1, :k]) for k, n in lengths.items())
        matrix = np.full(shape, 1e-3, np.float32)
        yardstick = lambda: matrix @ matrix

    def run() -> dict[str, float]:
        for _ in range(batches):
            embeddings = encode()
        return {"norm": float(np.linalg.norm(embeddings))}

    run()
    yardstick()
    interleaved.serve(run, {"flops": count * batches}, yardstick=yardstick)


def _numpy_encode(
    family: str, sizes: dict[str, Any], params: Any, tokens: np.ndarray, pad_id: int
) -> Callable[[], np.ndarray]:
    """A function that encodes the tokens without their padding."""
    from xling_jax.encode.backends import NumpyBackend
    from xling_jax.encode.texts import TokenWindow
    from xling_jax.models.numpy_encoders import NUMPY_ENCODERS

    backend = NumpyBackend(NUMPY_ENCODERS[family](**sizes), params)
    is_real = tokens != pad_id
    window = TokenWindow(tokens[is_real], np.cumsum([0, *is_real.sum(1)]))
    embeddings = np.empty((len(tokens), backend.encoder.dim), np.float32)

    def encode() -> np.ndarray:
        backend.run_window(window, embeddings, tokens.shape[1])
        return embeddings

    return encode
