"""Starts preparation on Beam; records of a workdir at a URL are copied here and back."""

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from xling_jax.corpora import prepare as here
from xling_jax.corpora.beam.engine import UNFINISHED, BeamEngine, copy_file, everywhere
from xling_jax.corpora.beam.runner import BeamRunner
from xling_jax.corpora.options import Preparation
from xling_jax.corpora.specs import open_corpus
from xling_jax.files import urls

# The records of stages, without those of single shards.
_RECORDS = ("text.json", "pair.json", "counts.json", "manifest.json", "input_hashes.json")


def prepare(
    runner: BeamRunner,
    preparation: Preparation,
    *,
    workdir: str | os.PathLike[str],
    local: Callable[[str], str] = lambda path: path,
    keep: bool = False,
) -> dict[str, Any]:
    """As `corpora.prepare.prepare`, by the workers of a runner: the same tokens, byte for byte.

    This machine plans and waits. It reads what is held out of training and a vocabulary that the
    config names, finds duplicates by 8 bytes a row, and trains the vocabulary on its sample. The
    workdir is a directory, the same for all workers, or a URL of a file system of Beam's.

    Returns:
        The content of `counts.json`.

    Raises:
        ValueError: as `corpora.prepare.prepare`, or for what needs text on one machine.
        OSError: from reading or writing, or if a pipeline failed.
    """
    if preparation.teacher:
        raise ValueError(
            "objective.distillation with a teacher needs the rows on one machine; prepare without "
            f"--runner {runner.name}"
        )
    workdir = everywhere(os.fspath(workdir).rstrip("/"))
    for spec in (*preparation.corpora, *preparation.validation_corpora):
        open_corpus(spec).at(everywhere)  # is there such a store?
    with _records_here(workdir) as directory:
        engine = BeamEngine(runner, workdir, directory)
        made = here.prepare(preparation, workdir=directory, local=local, keep=keep, engine=engine)
        return made.counts


@contextlib.contextmanager
def _records_here(workdir: str) -> Iterator[Path]:
    """Gives a directory with the records of a workdir; its changes are copied back."""
    if not urls.is_url(workdir):
        yield Path(workdir)
        return
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        for path in urls.find(workdir):
            relative = path.removeprefix(f"{workdir}/")
            if relative.startswith("vocab/") or relative.endswith(_RECORDS):
                copy_file(path, directory / relative)
        before = {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}
        is_done = False
        try:
            yield directory
            is_done = True
        except (ValueError, OSError) as error:
            if name not in str(error):
                raise
            raise type(error)(str(error).replace(name, workdir)) from error
        finally:
            _copy_back(directory, workdir, before, is_done)


def _copy_back(directory: Path, workdir: str, before: dict[Path, bytes], is_done: bool) -> None:
    """Copies records that are new or changed, the manifest last, and removes what is not used."""
    files = [path for path in directory.rglob("*") if path.is_file()]
    names = {path.relative_to(directory).as_posix(): path for path in files}
    last = "data/manifest.json"
    for name, path in sorted(names.items(), key=lambda item: (item[0] == last, item[0])):
        is_record = name.startswith("vocab/") or name.endswith(_RECORDS)
        if not is_record or ".partial/" in name or (name == last and not is_done):
            continue
        if (content := path.read_bytes()) != before.get(path) or name == last:
            urls.write(f"{workdir}/{name}", content)
    if not is_done:
        return
    stages = {
        PurePosixPath(name).parent for name in names if name.endswith(("pair.json", "text.json"))
    }

    def is_used(name: str) -> bool:
        if name.startswith("vocab/"):
            return name in names
        path = PurePosixPath(name)
        in_stage = not stages.isdisjoint(path.parents) and path.name != UNFINISHED
        return in_stage or path.parent == PurePosixPath("data")

    for top in ("data", "vocab"):
        found = urls.find(f"{workdir}/{top}")
        for path in found:
            if not is_used(path.removeprefix(f"{workdir}/")):
                urls.remove(path)
