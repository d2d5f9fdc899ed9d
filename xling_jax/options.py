"""Options: what a class or function takes from a config or a command line, and with which defaults.

A default stands once, in the signature of what takes it. Configs, `--help` and the documentation
read it from there.
"""

import dataclasses
import inspect
from collections.abc import Callable, Collection, Mapping
from typing import Any

from xling_jax.registry import check_choice, did_you_mean

REQUIRED = inspect.Parameter.empty


class OptionError(ValueError):
    """An option, or a file that it names, cannot be used; commands exit with status 2."""


def option(
    default: Any,
    help: str = "",
    choices: Collection[Any] = (),
    *,
    positive: bool = False,
    **argument: Any,
) -> Any:
    """A dataclass field that commands offer as an argument.

    Args:
        default: its value where none is given.
        help: for `--help`.
        choices: possible values, or of a tuple its possible items; empty for any of the type.
        positive: whether numbers must be greater than 0.
        **argument: for `argparse`, such as metavar, nargs, const or type.
    """
    metadata = {"help": help, "choices": tuple(choices), "positive": positive}
    return dataclasses.field(default=default, metadata=metadata | {"argument": argument})


def check_values(options: Any, label: Callable[[str], str] = str) -> None:
    """Checks the options of a dataclass against their choices and ranges.

    Args:
        options: the dataclass; of a tuple each item is checked.
        label: name of an option -> what errors call it.

    Raises:
        OptionError: if one is out of range.
    """
    for field in dataclasses.fields(options):
        value, name = getattr(options, field.name), label(field.name)
        for item in value if isinstance(value, tuple) else (value,):
            if item is not None and (choices := field.metadata.get("choices")):
                try:
                    check_choice(name, item, choices)
                except ValueError as error:
                    raise OptionError(str(error)) from error
            if item is not None and field.metadata.get("positive") and not item > 0:
                raise OptionError(f"{name}={item} must be positive")


def defaults(target: Callable, supplied: Collection[str] = ()) -> dict[str, Any]:
    """Options of a class or function, name -> default; `REQUIRED` where it has none.

    Args:
        target: a dataclass, Linen module or function.
        supplied: arguments that the caller gives and no config may.
    """
    skipped = {"self", "parent", "name", *supplied}
    kinds = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    found = {}
    for name, parameter in inspect.signature(target).parameters.items():
        if name in skipped or parameter.kind in kinds:
            continue
        default = parameter.default
        if dataclasses.is_dataclass(target) and name in (fields := target.__dataclass_fields__):
            factory = fields[name].default_factory
            default = default if factory is dataclasses.MISSING else factory()
        found[name] = default
    return found


def check(target: Callable, settings: Mapping[str, Any], where: str, **supplied: Any) -> None:
    """Raises ValueError if settings name an option that a target does not have, or miss one.

    Args:
        target: a class or function.
        settings: option -> value.
        where: section of the config, for the message.
        **supplied: arguments that are given beside the settings.
    """
    known = defaults(target, supplied)
    for name in settings:
        if name not in known:
            hint = did_you_mean(name, known) or f"known are {', '.join(known) or 'none'}"
            raise ValueError(f"{where}.{name}: unknown option of {target.__name__}; {hint}")
    for name, default in known.items():
        if default is REQUIRED and name not in settings:
            raise ValueError(f"{where}.{name} is missing; {target.__name__} needs it")


def build(target: Callable, settings: Mapping[str, Any], where: str, **supplied: Any) -> Any:
    """Calls a class or function with checked settings; arguments and errors as `check`."""
    check(target, settings, where, **supplied)
    return target(**settings, **supplied)
