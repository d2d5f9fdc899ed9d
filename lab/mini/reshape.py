"""Makes a static encoder from others: averaged, with more dimensions, rotated, narrowed.

    python lab/mini/reshape.py --model runs/a --average runs/b --output mean
    python lab/mini/reshape.py --model mean --token-vectors words.npy --principal-axes text.txt \
        --truncate-dim 256 --feature-dim 160 --output joined

Done in this order.
"""

import argparse
import dataclasses
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from xling_jax.encode.backends import StaticBackend
from xling_jax.encode.encoder import Encoder
from xling_jax.encode.model_directory import (
    ModelSpec,
    find_model_directory,
    load_model,
    save_changed,
)
from xling_jax.files.lines import iterate_lines
from xling_jax.models.numpy_static import NumpyStatic, parameters_of_vectors
from xling_jax.models.row_storage import STORAGES

Params = Mapping[str, np.ndarray]
Reshaped = tuple[NumpyStatic, dict[str, np.ndarray]]


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="reshape.py", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--model", required=True, help="a static encoder")
    parser.add_argument(
        "--average",
        nargs="+",
        default=[],
        metavar="MODEL",
        help="encoders to average with, of other runs on the same text; one named twice counts "
        "twice",
    )
    parser.add_argument(
        "--token-vectors", metavar="FILE.npy", help="[tokens, any] float32, further dimensions"
    )
    parser.add_argument(
        "--linear", metavar="FILE.npy", help="[dims, dims], a map of vectors, mini_similarity.py"
    )
    parser.add_argument(
        "--principal-axes", metavar="FILE", help="text on whose principal axes to rotate"
    )
    parser.add_argument("--truncate-dim", type=int, metavar="DIM", help="dimensions to keep")
    parser.add_argument(
        "--feature-dim", type=int, metavar="DIM", help="of pairs and triples; default all"
    )
    parser.add_argument("--storage", choices=STORAGES, default="float32")
    parser.add_argument("--output", required=True, help="the model directory to write")
    args = parser.parse_args(words)
    spec = load_model(find_model_directory(args.model))
    training = spec.config["training"]
    if args.average:
        training = training | {"averaged_runs": 1 + len(args.average)}
    try:
        static, params = reshaped(spec, args)
    except ValueError as error:
        parser.error(str(error))
    save_changed(
        args.output,
        spec,
        encoder_args=spec.config["encoder"]
        | {"storage": static.storage, "width": static.width}
        | ({"feature_width": static.feature_width} if static.feature_width else {}),
        params=params,
        training=training,
        truncate_dim=None,
        calibration=None,
    )


def reshaped(spec: ModelSpec, args: argparse.Namespace) -> Reshaped:
    """The sizes and parameters that the arguments ask for.

    Raises:
        ValueError: if they do not fit the encoder.
    """
    if spec.static is None:
        raise ValueError(f"--model {args.model}: must be of family static")
    static, params = dataclasses.replace(spec.static, storage="float32"), spec.params
    if args.average:
        others = [load_model(find_model_directory(path)) for path in args.average]
        for path, other in zip(args.average, others):
            if (
                other.static is None
                or dataclasses.replace(other.static, storage="float32") != static
                or other.vocab.fingerprint != spec.vocab.fingerprint
            ):
                raise ValueError(f"--average {path}: must be of the form and vocabulary of --model")
        params = averaged(static, [params, *(other.params for other in others)])
    if spec.truncate_dim:
        static, params = static.truncated(params, spec.truncate_dim)
    if args.token_vectors:
        static, params = joined(static, params, np.load(args.token_vectors))
    if args.linear:
        static, params = mapped(static, params, np.load(args.linear))
    axes = np.eye(static.width, dtype=np.float32)
    if args.principal_axes:
        encoder = Encoder(
            StaticBackend(static, params),
            spec.vocab,
            specials=spec.config["specials"],
            max_length_tokens=spec.max_length_tokens,
            dim=static.width,
        ).with_prompt(spec.prompts.get(spec.default_prompt, ""))
        vectors = encoder.encode_stream(iterate_lines(args.principal_axes), normalize=True)
        axes = axes_of_parts(vectors, static.feature_width if static.features else 0)
    width = args.truncate_dim or static.width
    static, params = rotated(static, params, axes[:, :width])
    if args.feature_dim:
        static, params = narrowed(static, params, args.feature_dim)
    return (static, params) if args.storage == "float32" else static.quantized(params, args.storage)


def averaged(static: NumpyStatic, all_params: Sequence[Params]) -> dict[str, np.ndarray]:
    """The float32 parameters whose vectors are the means of those of several encoders.

    Encoders that were trained from the same initial vectors, on other batches, differ in what
    they learned by chance, which the mean has less of (Wortsman et al. 2022, "Model soups").
    """
    if static.normalize:
        raise ValueError("--average: means of tables are not those of normalized vectors")
    keys = [params.get("feature_keys") for params in all_params]
    if static.features and not all(np.array_equal(keys[0], other) for other in keys[1:]):
        raise ValueError("--average: encoders must have rows for the same features")
    all_rows = zip(*([table.vectors() for table in static.tables(params)] for params in all_params))
    share = np.float32(1 / len(all_params))
    return parameters_of_vectors([sum(rows) * share for rows in all_rows], keys[0])


def joined(static: NumpyStatic, params: Params, vectors: np.ndarray) -> Reshaped:
    """Adds dimensions: the mean of the vectors [vocab_size, dims] of a sentence's tokens.

    Features add nothing to them.
    """
    if vectors.ndim != 2 or len(vectors) != static.vocab_size or not np.isfinite(vectors).all():
        raise ValueError(
            f"--token-vectors: must be finite floats of shape [{static.vocab_size}, any]; found "
            f"{vectors.dtype} {list(vectors.shape)}"
        )
    tokens, *features = (table.vectors() for table in static.tables(params))
    more = np.zeros((len(tokens), vectors.shape[1]), np.float32)
    more[: static.vocab_size] = vectors
    if not static.feature_width:  # features are to be as wide as the vectors
        features = [np.pad(rows, ((0, 0), (0, vectors.shape[1]))) for rows in features]
    rows = [np.hstack([tokens, more]), *features]
    wider = dataclasses.replace(static, width=static.width + vectors.shape[1])
    return wider, parameters_of_vectors(rows, params.get("feature_keys"))


def mapped(static: NumpyStatic, params: Params, map_: np.ndarray) -> Reshaped:
    """The vectors u as u @ map_, rotated so that features keep their number of dimensions.

    What the first dimensions, those of features, are mapped to has their rank; a QR decomposition
    finds axes of which it needs that many.
    """
    dims = static.feature_dims if static.features else 0
    axes, _ = np.linalg.qr(map_[:dims].T.astype(np.float64), mode="complete")
    return rotated(static, params, (map_ @ axes).astype(np.float32))


def axes_of_parts(vectors: Iterable[np.ndarray], first: int) -> np.ndarray:
    """The principal axes [dim, dim] of unit vectors, the first dimensions apart from the others.

    Orthonormal eigenvectors of the mean of u uᵀ in columns, that of the largest eigenvalue first.
    The mean vector is not subtracted, since inner products are to be preserved. With 0, all
    dimensions are rotated together.
    """
    moments = sum(part.T.astype(np.float64) @ part for part in vectors)
    if not np.any(moments):
        raise ValueError("--principal-axes: the file has no text; axes need many sentences")
    axes = np.zeros_like(moments)
    for block in (slice(first), slice(first, None)):
        axes[block, block] = np.linalg.eigh(moments[block, block])[1][:, ::-1]
    # Either sign is right; with this one the same text gives the same vectors everywhere.
    largest = np.take_along_axis(axes, np.abs(axes).argmax(axis=0)[None], axis=0)
    return (axes * np.sign(largest)).astype(np.float32)


def rotated(static: NumpyStatic, params: Params, axes: np.ndarray) -> Reshaped:
    """The vectors u as u @ axes, for orthonormal columns the same in other coordinates.

    With fewer columns the vectors have fewer dimensions. The features' dimensions must depend on
    their own only.
    """
    width = axes.shape[1]
    result = dataclasses.replace(
        static, width=width, feature_width=min(static.feature_width, width)
    )
    tables = {"embedding": params["embedding"] @ axes}
    if static.features:
        rows = params["feature_embedding"]
        tables["feature_embedding"] = rows @ axes[: static.feature_dims, : result.feature_dims]
    return result, {**params, **tables}


def narrowed(static: NumpyStatic, params: Params, feature_width: int) -> Reshaped:
    """Keeps only the first dimensions of features."""
    if not static.features or feature_width > static.feature_dims:
        raise ValueError(f"--feature-dim {feature_width}: features have {static.feature_dims}")
    rows = np.ascontiguousarray(params["feature_embedding"][:, :feature_width])
    static = dataclasses.replace(static, feature_width=feature_width)
    return static, {**params, "feature_embedding": rows}


if __name__ == "__main__":
    main()
