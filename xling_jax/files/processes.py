"""Several processes that run one command together, as one of them sees the others."""

import dataclasses
import glob
from collections.abc import Callable
from pathlib import Path

from xling_jax.files import urls


@dataclasses.dataclass(frozen=True)
class Processes:
    """The processes of a command, or this one alone.

    They share a file system, or a directory of an object store through which they hand each other
    files: one sends, all meet, the others receive.

    Attributes:
        index: number of this process, from 0.
        count: number of processes.
        meet: returns when all have called it with the same name, which must be used only once.
        store: URL of the directory in the object store; empty with a shared file system.
    """

    index: int = 0
    count: int = 1
    meet: Callable[[str], None] = lambda name: None
    store: str = ""

    def send(self, path: Path) -> None:
        """Makes a file available to the others."""
        if self.store:
            urls.put(path, f"{self.store}/{path.name}")

    def receive(self, path: Path) -> None:
        """Gets a file that another process has sent."""
        if self.store:
            urls.get(f"{self.store}/{path.name}", path)

    def remove(self, pattern: Path) -> None:
        """Removes the files whose names match the last part of a path, here and in the store."""
        for file in glob.glob(pattern.name, root_dir=pattern.parent):
            pattern.with_name(file).unlink(missing_ok=True)
        if self.store:
            urls.remove(f"{self.store}/{pattern.name}")
