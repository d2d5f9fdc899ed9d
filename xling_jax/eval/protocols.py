"""Who teaches whom: the trainings and tests of each classification protocol."""

from collections.abc import Collection, Sequence
from typing import NamedTuple

PROTOCOLS = ("zero-shot", "targeted", "leave-one-out")


class Training(NamedTuple):
    """One training: the row of the table it fills, and the languages on either side."""

    row: str
    train: tuple[str, ...]
    tests: tuple[str, ...]


def list_trainings(
    protocol: str, train_languages: Sequence[str], test_languages: Collection[str]
) -> list[Training]:
    """Lists the trainings of a protocol.

    `zero-shot` trains on each language and tests on all. `targeted` trains, validates and tests
    in one language; what Yu et al. (2018) call targeted, a zero-shot classifier selected in the
    test language, is the oracle of zero-shot. `leave-one-out` trains on all languages but the one
    it tests on.

    Args:
        protocol: one of `PROTOCOLS`.
        train_languages: those with training text, in the order of the table.
        test_languages: those with test text, in the order of the table.

    Returns:
        The trainings; the rows are languages, or "itself", or "the others".

    Raises:
        ValueError: if the protocol is unknown or the languages leave nothing to measure.
    """
    tests = tuple(test_languages)
    if protocol == "zero-shot":
        trainings = [Training(code, (code,), tests) for code in train_languages]
    elif protocol == "targeted":
        trainings = [Training("itself", (code,), (code,)) for code in tests]
        trainings = [training for training in trainings if training.train[0] in train_languages]
    elif protocol == "leave-one-out":
        others = {code: tuple(c for c in train_languages if c != code) for code in tests}
        trainings = [Training("the others", others[code], (code,)) for code in tests]
        trainings = [training for training in trainings if training.train]
    else:
        raise ValueError(f"protocol must be one of {', '.join(PROTOCOLS)}; got {protocol!r}")
    if not trainings:
        raise ValueError(
            f"{protocol} needs training text for one of the test languages {', '.join(tests)}; "
            f"there is some in {', '.join(train_languages) or 'none'}"
        )
    return trainings


def is_same(protocol: str, row: str, column: str) -> bool:
    """Whether a cell is of a classifier trained in the language it is tested in."""
    return protocol == "targeted" or (protocol == "zero-shot" and row == column)
