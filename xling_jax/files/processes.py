"""Several processes that run one command together, as one of them sees the others."""

import dataclasses
from collections.abc import Callable


@dataclasses.dataclass(frozen=True)
class Processes:
    """The processes of a command, or this one alone.

    Attributes:
        index: number of this process, from 0.
        count: number of processes.
        meet: returns when all have called it with the same name, which must be used only once.
    """

    index: int = 0
    count: int = 1
    meet: Callable[[str], None] = lambda name: None
