"""Starts preparation on Beam; records of a workdir at a URL are copied here and back."""

import contextlib
import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from xling_jax.corpora import prepare as here
from xling_jax.corpora.beam.engine import UNFINISHED, BeamEngine
from xling_jax.corpora.beam.runner import BeamRunner
from xling_jax.corpora.options import Preparation
from xling_jax.corpora.specs import open_corpus
from xling_jax.files import urls

# The records of stages, without those of single shards.
_MANIFEST = "data/manifest.json"
_RECORDS = ("text.json", "pair.json", "counts.json", "manifest.json", "input_hashes.json")


def prepare(
    runner: BeamRunner,
    preparation: Preparation,
    *,
    workdir: str | os.PathLike[str],
    keep: bool = False,
) -> dict[str, Any]:
    """As `corpora.prepare.prepare`, by the workers of a runner: the same tokens, byte for byte.

    This machine plans and waits. It reads what is held out of training and a vocabulary that the
    config names, finds duplicates by 8 bytes a row, and trains the vocabulary on its sample. The
    workdir is a directory, the same for all workers, or a URL. Returns the content of
    `counts.json`; OSError also if a pipeline failed.
    """
    if preparation.teacher:
        raise ValueError(
            "objective.distillation with a teacher needs the rows on one machine; prepare without "
            f"--runner {runner.name}"
        )
    workdir = BeamEngine.place(os.fspath(workdir).rstrip("/"))
    for spec in preparation.corpora:
        open_corpus(spec).at(BeamEngine.place)  # is there such a store?
    with _records_here(workdir) as directory:
        engine = BeamEngine(runner, workdir, directory)
        made = here.prepare(preparation, workdir=directory, keep=keep, engine=engine)
        return made.counts


@contextlib.contextmanager
def _records_here(workdir: str) -> Iterator[Path]:
    """Gives a directory with the records of a workdir at a URL; they are copied back.

    The manifest comes last, and only without an error; then what no stage uses is removed.
    """
    if not urls.is_url(workdir):
        yield Path(workdir)
        return
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        for path in urls.find(workdir):
            if _is_record(relative := path.removeprefix(f"{workdir}/")):
                urls.get(path, directory / relative)
        done = False
        try:
            yield directory
            done = True
        except (ValueError, OSError) as error:
            if name not in str(error):
                raise
            raise type(error)(str(error).replace(name, workdir)) from error
        finally:
            files = (path for path in directory.rglob("*") if path.is_file())
            names = [path.relative_to(directory).as_posix() for path in files]
            for record in sorted(filter(_is_record, names), key=lambda n: (n == _MANIFEST, n)):
                if done or record != _MANIFEST:
                    urls.write(f"{workdir}/{record}", (directory / record).read_bytes())
        _remove_unused(workdir, names)


def _is_record(name: str) -> bool:
    return name.startswith("vocab/") or (name.endswith(_RECORDS) and ".partial/" not in name)


def _remove_unused(workdir: str, names: Sequence[str]) -> None:
    """Removes what is in no stage that has a record here."""
    stages = {PurePosixPath(n).parent for n in names if n.endswith(("pair.json", "text.json"))}
    for top in ("data", "vocab"):
        for path in urls.find(f"{workdir}/{top}"):
            name = PurePosixPath(path.removeprefix(f"{workdir}/"))
            in_stage = not stages.isdisjoint(name.parents) and name.name != UNFINISHED
            is_vocab = top == "vocab" and str(name) in names
            if not (in_stage or is_vocab or str(name.parent) == "data"):
                urls.remove(path)
