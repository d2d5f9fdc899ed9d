"""Several processes that run one command together, seen from one of them."""

import dataclasses
from collections.abc import Callable


@dataclasses.dataclass(frozen=True)
class Processes:
    """The processes that work together.

    Attributes:
        index: number of this one.
        count: how many there are.
        meet: returns when all have called it with one name, which none uses twice.
        num_here: how many of them share this machine's cores, as far as is known.
    """

    index: int = 0
    count: int = 1
    meet: Callable[[str], None] = lambda name: None
    num_here: int = 1
