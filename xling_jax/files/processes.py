"""Several processes that run one command together, seen from one of them."""

import dataclasses
from collections.abc import Callable
from pathlib import Path


@dataclasses.dataclass(frozen=True)
class Processes:
    """The processes that work together.

    Those that share a file system meet, and then see what the others have written. Those that do
    not also send it before they meet, and receive it afterwards: `prepare` directories, `embed` and
    `mine` files.

    Attributes:
        index: number of this one.
        count: how many there are.
        meet: returns when all have called it with one name, which none uses twice.
        num_here: how many of them share this machine's cores, as far as is known.
        send: makes a file, or what is below a directory, available to the others.
        receive: takes over what others have sent of it.
    """

    index: int = 0
    count: int = 1
    meet: Callable[[str], None] = lambda name: None
    num_here: int = 1
    send: Callable[[Path], None] = lambda path: None
    receive: Callable[[Path], None] = lambda path: None
