"""Arguments that several commands take, and the checks that come before any work."""

import argparse
import contextlib
import glob
import os
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xling_jax.cli.options import flag, words
from xling_jax.config import load_options
from xling_jax.corpora.specs import local_names, names_kind, split_options
from xling_jax.devices import DTYPES
from xling_jax.files import urls
from xling_jax.files.cache import cache_for
from xling_jax.files.lines import COMPRESSED, COMPRESSED_SUFFIXES
from xling_jax.files.whole import temporary_directory
from xling_jax.options import OptionError, require_file, wrong_use

if TYPE_CHECKING:
    import numpy as np

    from xling_jax.encode.encoder import Encoder

MODEL_HELP = (
    "model directory, workdir, name of a packaged encoder, or a published encoder: the directory "
    "of its files, or hf:ORG/NAME"
)
SIDES = ("source", "target")
# Commands whose workdir may be at a URL.
_HAVE_WORKDIRS = ("prepare", "train")


def add_config_and_workdir(parser: argparse.ArgumentParser, needs_workdir: bool = True) -> None:
    """Adds `--config` and `--workdir`."""
    parser.add_argument(
        "--config",
        required=True,
        metavar="NAME[:ARG]",
        help="name of a packaged config, or a config file, such as ct_laser:small; "
        "--config.SECTION.KEY=VALUE changes any key",
    )
    parser.add_argument(
        "--workdir",
        required=needs_workdir,
        help="directory of the run; an existing run is continued",
    )


def add_model(parser: argparse.ArgumentParser, *, required: bool = False) -> None:
    """Adds `--model` and its options."""
    parser.add_argument("--model", required=required, help=MODEL_HELP)
    add_vector_options(parser)


def add_vector_options(parser: argparse.ArgumentParser) -> None:
    """Adds `--dtype` and `--truncate-dim`."""
    parser.add_argument(
        "--dtype",
        metavar="DTYPE",
        choices=DTYPES,
        help=f"data type of the computation: {', '.join(DTYPES)}; vectors are float32 (default: "
        "the model's own, otherwise float32 on a CPU and the fastest on a GPU or TPU)",
    )
    parser.add_argument(
        "--truncate-dim",
        type=int,
        metavar="DIM",
        help="use only the first dimensions of the model's vectors",
    )


class Once(argparse.Action):
    """Stores a value, and refuses a second one, in place of which the first would be lost."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        if getattr(namespace, self.dest) is not self.default:
            raise argparse.ArgumentError(self, "is given twice; give one")
        setattr(namespace, self.dest, values)


def add_languages(parser: argparse.ArgumentParser, help: str, metavar: str = "CODE,CODE") -> None:
    """Adds `--languages`, a list."""
    parser.add_argument("--languages", type=words, action=Once, metavar=metavar, help=help)


def add_config_values(parser: argparse.ArgumentParser) -> None:
    """Adds a `--config` of values for the other arguments, see `optional_config`."""
    parser.add_argument(
        "--config",
        metavar="NAME[:ARG]",
        help="values for arguments not given here, such as lawdr_wmt16:encoder=xlm; "
        "--config.KEY=VALUE changes one",
    )


def add_output(parser: argparse.ArgumentParser, help: str, metavar: str = "OUTPUT") -> None:
    """Adds `--output` and `--overwrite`."""
    parser.add_argument("--output", required=True, metavar=metavar, help=help)
    parser.add_argument("--overwrite", action="store_true", help="replace an existing output")


def add_sides(
    parser: argparse.ArgumentParser,
    text: str,
    vectors: str,
    *,
    required: bool = False,
    many: bool = False,
) -> None:
    """Adds `--model`, its options, the two sides, `many` files each or one, and their vectors."""
    add_model(parser)
    several: dict[str, Any] = {"action": Once}
    if many:
        several = {"nargs": "+", "action": "extend", "default": []}
    for side in SIDES:
        parser.add_argument(f"--{side}", required=required, metavar="FILE", help=text, **several)
        parser.add_argument(f"--{side}-embeddings", metavar="E.npy", help=vectors, **several)
    parser.add_argument("--dim", type=int, help="dimension of LASER's .bin vectors")


def check_sides(
    args: argparse.Namespace,
    *inputs: str,
    can_be_folders: bool = False,
    files: Callable[[str], Sequence[str]] = lambda path: [path],
) -> None:
    """Checks the arguments of `add_sides`, other inputs, and the output, as `check_output`."""
    vectors = [f"{side}_embeddings" for side in SIDES]
    for name in (*SIDES, *vectors, *inputs):
        check_input(args, name, can_be_folder=can_be_folders and name in SIDES)
    if [*_paths(args.source), *_paths(args.target)].count("-") > 1:
        raise OptionError("--source - and --target -: only one of them can be stdin")
    ready = [bool(getattr(args, name)) for name in vectors]
    if not args.model and not all(ready):
        raise OptionError("--model is required, or --source-embeddings and --target-embeddings")
    for name in ("dtype", "truncate_dim"):
        if not args.model and (value := getattr(args, name)) is not None:
            raise OptionError(f"{flag(name)} {value}: requires --model")
    if args.model and all(ready):
        raise OptionError("--model: both sides have vectors, so there is nothing to embed")
    if args.dim is not None and (args.dim < 1 or not any(ready)):
        raise OptionError(f"--dim {args.dim}: must be positive, and requires --SIDE-embeddings")
    check_output(args, *SIDES, *vectors, *inputs, files=files)


def check_input(args: argparse.Namespace, name: str, *, can_be_folder: bool = False) -> None:
    """Raises `OptionError` if a file of an argument is missing, or a folder where it cannot be.

    A corpus `KIND:WHERE` is left to its reader, and so are options after a path.
    """
    for path in _paths(getattr(args, name)):
        if path == "-" or names_kind(path):
            continue
        if require_file(split_options(path)[0], flag(name)).is_dir() and not can_be_folder:
            raise OptionError(f"{flag(name)} {path}: is a directory")


def check_text(path: str, argument: str, records: str) -> None:
    """Raises `OptionError` for a file that is no text by its name; `records` is for JSON lines."""
    name = os.path.basename(path).lower()
    if ".jsonl" in name:
        raise OptionError(f"{argument} {path}: is JSON lines; {records}")
    if match := re.search(rf"\.(csv|json)({COMPRESSED})?$", name):
        raise OptionError(f"{argument} {path}: is {match[1].upper()}; write one text a line")


def refuse_suffix(path: str, suffixes: Sequence[str], way_out: str) -> None:
    """Raises `OptionError` for an output whose name promises another format."""
    if (suffix := os.path.splitext(path)[1].lower()) in suffixes:
        raise OptionError(f"--output {path}: {suffix} is not written; {way_out}")


def matching_files(paths: Sequence[str], argument: str) -> list[str]:
    """The files that patterns match, in the order of their names, and other paths as they are."""
    found: list[str] = []
    for path in paths:
        pattern, options = split_options(path)
        if not glob.has_magic(pattern) or os.path.exists(pattern):
            found.append(path)
            continue
        matches = sorted(f for f in glob.glob(pattern, recursive=True) if os.path.isfile(f))
        if not matches:
            raise OptionError(f"{argument} {path}: matches no file")
        found += [f"{match}?{options}" if options else match for match in matches]
    return found


def _paths(value: str | Sequence[str] | None) -> Sequence[str]:
    """The paths of an argument that is one, several or none."""
    return [value] if isinstance(value, str) and value else value or []


def read_vectors(
    path: str, num_rows: int, what: str, args: argparse.Namespace, encoder: "Encoder | None"
) -> "np.ndarray":
    """Reads the vectors of a side, [num_rows, dim]; `what` is what they are of, for the error."""
    from xling_jax.files.embeddings import read_embeddings

    vectors = read_embeddings(path, dim=args.dim or (encoder.dim if encoder else None))
    if len(vectors) != num_rows:
        raise ValueError(
            f"{path}: must have one row for each of the {num_rows} {what}; found {len(vectors)}"
        )
    return vectors


def check_output(
    args: argparse.Namespace,
    *inputs: str,
    files: Callable[[str], Sequence[str]] = lambda path: [path],
) -> None:
    """Refuses an `--output` that cannot be written, or is a file of the arguments `inputs`.

    `files` are those that the output consists of.
    """
    if args.output == "-":
        return
    for path in map(Path, files(args.output)):
        named = f"--output {path}"
        for name in inputs:
            if os.path.realpath(path) in map(os.path.realpath, _paths(getattr(args, name))):
                raise OptionError(f"{named}: is also {flag(name)}; choose another")
        if path.is_dir():
            raise OptionError(f"{named}: is a directory; name a file")
        if path.exists() and not path.is_file():
            raise OptionError(f"{named}: is not a regular file; use - for stdout")
        if path.name.endswith(COMPRESSED_SUFFIXES):
            raise OptionError(
                f"{named}: is written uncompressed; drop the suffix, or write to - and pipe into "
                "gzip"
            )
        refuse_existing(path, args.overwrite)
        if not path.parent.is_dir():
            raise OptionError(f"{named}: no such directory; create it first")


def refuse_existing(path: str | os.PathLike, overwrite: bool) -> None:
    """Raises `OptionError` if an output exists and may not be replaced."""
    if Path(path).exists() and not overwrite:
        raise OptionError(f"{path}: exists; choose another --output or add --overwrite")


def choose_checkpoints(workdir: str, chosen: str) -> list[int]:
    """The steps of `--checkpoint STEP,STEP` or `all`, ascending."""
    from xling_jax.train.checkpoint import kept_steps

    directory = Path(workdir) / "checkpoints"
    kept = kept_steps(directory) if directory.is_dir() else []
    if not kept:
        raise OptionError(f"--checkpoint {chosen}: {workdir} contains no checkpoints")
    if chosen == "all":
        return kept
    words = chosen.split(",")
    steps = {int(word) for word in words if word.isdigit()}
    if len(steps) < len(words) or not steps <= {*kept}:
        known = ", ".join(map(str, kept))
        raise OptionError(f"--checkpoint {chosen}: {directory} has {known}; choose from these")
    return sorted(steps)


def optional_config(args: argparse.Namespace) -> dict[str, Any] | None:
    """The config of a command that takes option values from one; None if none is given."""
    overrides = getattr(args, "config_overrides", ())
    if path := getattr(args, "config", None):
        return load_options(path, overrides)
    if overrides:
        raise OptionError(f"{overrides[0]}: requires --config FILE")
    return None


def load_encoder(path: str | os.PathLike, args: argparse.Namespace | None = None) -> "Encoder":
    """Loads the encoder of a command with the arguments of `add_vector_options`."""
    import xling_jax

    encoder = xling_jax.load(path, args.dtype if args else None)
    if args is not None and args.truncate_dim is not None:
        encoder = encoder.truncated(args.truncate_dim)
    return encoder


@contextlib.contextmanager
def local_arguments(args: argparse.Namespace) -> Iterator[None]:
    """Gives a command paths on this machine for the URLs among its arguments, during a block.

    An output is copied to its URL when the block ends without an error.
    """
    local_only = {"workdir"} if args.command not in _HAVE_WORKDIRS else set()
    local_only |= {"model"} if args.command == "calibrate" else set()  # it writes into it
    given = vars(args)
    for name in local_only:
        if urls.is_url(given.get(name)):
            needs = f"xling {args.command} needs a local directory"
            raise OptionError(f"{flag(name)} {given[name]}: {needs}")
    url = given.get("output")
    for name in given.keys() - {"output", "words", "workdir", "config", "config_overrides"}:
        given[name] = local_names(given[name])
    if not urls.is_url(url):
        yield
        return
    url = url.rstrip("/")
    with wrong_use():
        if not given.get("overwrite") and urls.exists(url):
            raise ValueError(f"{url}: exists; choose another --output or add --overwrite")
    local = cache_for("outputs") / url.rpartition("/")[2]
    with temporary_directory(local) as directory:
        args.output = str(directory / local.name)
        yield
        urls.put(Path(args.output), url)
