"""The scripts of lab/ as modules."""

import contextlib
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

LAB = Path(__file__).parents[2] / "lab"


@contextlib.contextmanager
def script(path: str) -> Iterator[ModuleType]:
    """Imports a script of lab/, such as mini/reshape.py, which may import those beside it."""
    folder, _, name = path.removesuffix(".py").rpartition("/")
    sys.path.insert(0, str(LAB / folder))
    try:
        yield importlib.import_module(name)
    finally:
        sys.path.remove(str(LAB / folder))
