"""Tables of named things, each in a module of its own that is imported when it is first used.

Adding a thing is a new file and one line in its table. Commands, config checks, reports and the
documentation read the tables.
"""

import difflib
import importlib
from collections.abc import Iterable, Iterator
from typing import Any


def import_extra(package: str, extra: str, purpose: str) -> Any:
    """Imports a package that only an extra of ours installs; ImportError says how to install it.

    `purpose` is what needs it, for the error.
    """
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise ImportError(f"{purpose} needs {package}; pip install 'xling_jax[{extra}]'") from error


class Registry:
    """Things of one kind by name.

    Args:
        kind: what errors call them, such as "encoder family".
        **entries: name -> `module:attribute`, where the thing is, or `module` for the module
            itself; with a line of help as a pair (where, help).
    """

    def __init__(self, kind: str, **entries: str | tuple[str, str]):
        self.kind = kind
        self._entries = {
            name: (entry, "") if isinstance(entry, str) else entry
            for name, entry in entries.items()
        }

    def __getitem__(self, name: str) -> Any:
        """The thing of a name; ValueError lists the known ones."""
        check_choice(self.kind, name, self._entries)
        where = self._entries[name][0]
        module, _, attribute = where.partition(":")
        try:
            found = importlib.import_module(module)
            return getattr(found, attribute) if attribute else found
        except (AttributeError, ModuleNotFoundError) as error:
            if isinstance(error, ModuleNotFoundError) and error.name != module:
                raise
            raise ImportError(
                f"{self.kind} {name!r}: its table names {where}, which does not exist: {error}"
            ) from error

    def help(self, name: str) -> str:
        """The line of help of a name; imports nothing."""
        return self._entries[name][1]

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


def check_choice(what: str, value: Any, choices: Iterable[Any]) -> None:
    """Raises ValueError unless a value, named `what`, is one of the choices."""
    choices = list(choices)
    if value not in choices:
        hint = did_you_mean(value, choices)
        known = ", ".join(map(str, choices))
        raise ValueError(f"{what}={value!r} must be one of {known}{hint and f'; {hint}'}")


def did_you_mean(name: Any, known: Iterable[Any]) -> str:
    """`did you mean A or B?` for a misspelt name; empty if nothing is near."""
    near = difflib.get_close_matches(str(name), [str(k) for k in known], n=3)
    return f"did you mean {' or '.join(near)}?" if near else ""
