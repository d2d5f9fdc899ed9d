"""Options: what a class or function takes from a config or a command line, and with which defaults.

A default stands once, in the signature of what takes it. Configs, `--help` and the documentation
read it from there.
"""

import contextlib
import dataclasses
import functools
import inspect
import math
import numbers
import os
import re
import textwrap
import types
import typing
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from xling_jax.registry import check_choice, did_you_mean

REQUIRED = inspect.Parameter.empty
# Types of which the values of a config are made, by name: annotations may be strings.
_PLAIN = {"bool": bool, "int": int, "float": (int, float), "str": str, "NoneType": type(None)}


class OptionError(ValueError):
    """An option, or a file that it names, cannot be used; commands exit with status 2."""


@contextlib.contextmanager
def wrong_use(
    argument: str = "", errors: type[Exception] | tuple[type[Exception], ...] = ValueError
) -> Iterator[None]:
    """Turns errors within into an `OptionError` that begins with the name of an argument."""
    try:
        yield
    except errors as error:
        raise OptionError(f"{argument}: {error}" if argument else str(error)) from error


def require_file(path: str | os.PathLike, argument: str) -> Path:
    """Returns an input path that exists, or raises `OptionError` naming the argument."""
    if not Path(path).exists():
        raise OptionError(f"{argument} {path}: no such file or directory")
    return Path(path)


def option(
    default: Any,
    help: str = "",
    choices: Collection[Any] = (),
    *,
    positive: bool = False,
    **argument: Any,
) -> Any:
    """A dataclass field that commands offer as an argument.

    `choices` are its possible values, or of a tuple its possible items; empty for any of the type.
    Further arguments are for `argparse`, such as metavar, nargs, const or type.
    """
    metadata = {"help": help, "choices": tuple(choices), "positive": positive}
    return dataclasses.field(default=default, metadata=metadata | {"argument": argument})


def checks_numbers(function: Callable) -> Callable:
    """Makes a function raise ValueError for what is no number where it is annotated as one.

    That is, as int or float, or None besides. NaN is no number; NumPy's scalars are.
    """
    parameters = inspect.signature(function).parameters.values()
    wanted = [
        (position, parameter.name, kinds)
        for position, parameter in enumerate(parameters)
        if (kinds := _kinds(parameter.annotation))
    ]

    @functools.wraps(function)
    def checked(*given: Any, **named: Any) -> Any:
        for position, name, kinds in wanted:
            if name in named:
                check_kind(name, named[name], kinds)
            elif position < len(given):
                check_kind(name, given[position], kinds)
        return function(*given, **named)

    return checked


def check_kind(name: str, value: Any, kinds: Collection[str]) -> None:
    """Raises ValueError unless a value is of one of these kinds: `int`, `float`, `None`."""
    if getattr(value, "shape", None) == ():
        value = value.item()
    if value is None and "None" in kinds:
        return
    kind = numbers.Real if "float" in kinds else numbers.Integral
    if not isinstance(value, kind) or isinstance(value, bool) or value != value:
        rule = "a number" if "float" in kinds else "a whole number"
        raise ValueError(f"{name} must be {rule}; got {value!r:.60}")


def _kinds(annotation: Any) -> set[str]:
    """The parts of an annotation such as `int | None`; none if there are others."""
    text = annotation.__name__ if isinstance(annotation, type) else str(annotation)
    kinds = {kind.strip() for kind in text.split("|")}
    return kinds if kinds & {"int", "float"} and kinds <= {"int", "float", "None"} else set()


def check_values(options: Any, label: Callable[[str], str] = str) -> None:
    """Raises OptionError if an option of a dataclass, or an item of a tuple, is out of range.

    `label` maps the name of an option to what errors call it.
    """
    for field in dataclasses.fields(options):
        value, name = getattr(options, field.name), label(field.name)
        if kinds := _kinds(field.type):
            with wrong_use():
                check_kind(name, value, kinds)
        for item in value if isinstance(value, tuple) else (value,):
            if item is not None and (choices := field.metadata.get("choices")):
                with wrong_use():
                    check_choice(name, item, choices)
            if item is not None and field.metadata.get("positive") and not item > 0:
                raise OptionError(f"{name}={item} must be positive")


def defaults(target: Callable, supplied: Collection[str] = ()) -> dict[str, Any]:
    """Options of a class or function, name -> default; `REQUIRED` where it has none.

    Keyword arguments of the functions in a class attribute `passes_to` are options of the class
    too, but for those in its attribute `supplied`. The argument `supplied` names those that the
    caller gives and no config may.
    """
    skipped = {"self", "parent", "name", "passed", *supplied}
    fields = dataclasses.fields(target) if dataclasses.is_dataclass(target) else ()
    made = {f.name: f.default_factory for f in fields}
    found = {}
    for name, parameter in inspect.signature(target).parameters.items():
        if name in skipped or parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
            continue
        make = made.get(name, dataclasses.MISSING)
        found[name] = parameter.default if make is dataclasses.MISSING else make()
    return found | _passed_on(target)


def _passed_on(target: Callable) -> dict[str, Any]:
    return {
        name: parameter.default
        for function in getattr(target, "passes_to", ())
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY and name not in target.supplied
    }


def check(
    target: Callable,
    values: Mapping[str, Any],
    where: str,
    *,
    partial: bool = False,
    **supplied: Any,
) -> None:
    """Raises ValueError for an unknown option, a missing one, or a wrong value.

    Wrong are values of another type and numbers that are not finite or exceed 32 bits. Narrower
    ranges are checked by what takes the option. If `partial`, some may be missing; `supplied` are
    given besides.
    """
    known = defaults(target, supplied)
    functions = (*getattr(target, "passes_to", ()), target)
    parameters = {k: p for f in functions for k, p in inspect.signature(f).parameters.items()}
    for name, value in values.items():
        if name not in known:
            hint = did_you_mean(name, known)
            raise ValueError(
                f"{where}.{name} is not an option of {target.__name__}; {hint and hint + ' '}it "
                f"takes {textwrap.shorten(', '.join(known) or 'none', 120, placeholder=' …')}"
            )
        check_number(value, f"{where}.{name}")
        annotation = parameters[name].annotation if name in parameters else Any
        if not _fits(annotation, value):
            raise ValueError(f"{where}.{name}={value!r} must be of type {_name(annotation)}")
    for name, default in known.items():
        if default is REQUIRED and name not in values and not partial:
            raise ValueError(f"{where}.{name} is missing; {target.__name__} needs it")


def check_number(
    value: Any, where: str, at_least: float = -math.inf, below: float = math.inf
) -> None:
    """Raises ValueError for a number that is not finite, exceeds 32 bits or is out of a range.

    Values that are no numbers pass.
    """
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return
    if not math.isfinite(value) or (isinstance(value, int) and abs(value) >= 1 << 31):
        raise ValueError(f"{where}={value} must be finite and below 2**31")
    if not at_least <= value < below:
        bound = f" and below {below:g}" if below < math.inf else ""
        raise ValueError(f"{where}={value} must be at least {at_least:g}{bound}")


def _fits(annotation: Any, value: Any) -> bool:
    """Returns whether a value is of a type; of a union only plain ones count, not None alone."""
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (tuple, Sequence) and inner[1:] in ((), (...,)):
        return isinstance(value, (tuple, list)) and all(_fits(inner[0], item) for item in value)
    if origin is Mapping:
        return isinstance(value, Mapping) and all(_fits(inner[1], v) for v in value.values())
    if origin in (typing.Union, types.UnionType) and Any not in inner:
        plain = [one for one in inner if _name(one) in _PLAIN]
        return any(_fits(one, value) for one in plain) or {*plain} <= {type(None)}
    wanted = _PLAIN.get(_name(annotation))
    is_bool = isinstance(value, bool)
    return not wanted or (isinstance(value, wanted) and (wanted is bool or not is_bool))


def _name(annotation: Any) -> str:
    inner = typing.get_args(annotation)
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return " or ".join(name for name in map(_name, inner) if name in _PLAIN)
    return annotation.__name__ if isinstance(annotation, type) and not inner else str(annotation)


@contextlib.contextmanager
def naming_section(where: str, names: Collection[str]) -> Iterator[None]:
    """Lets a ValueError that begins with one of these options, `NAME=`, begin with its section."""
    try:
        yield
    except ValueError as error:
        named = re.match(r"(\w+)=", str(error))
        if named is None or named[1] not in names:
            raise
        raise type(error)(f"{where}.{error}") from error


def make(target: Callable, values: Mapping[str, Any], where: str, **supplied: Any) -> Any:
    """Calls a class or function with checked options; arguments and errors as `check`.

    A class with `passes_to` gets those that it passes on as the argument `passed`, complete.
    """
    check(target, values, where, **supplied)
    passed_on = _passed_on(target)
    if passed_on:
        supplied["passed"] = {name: values.get(name, value) for name, value in passed_on.items()}
    own = {name: value for name, value in values.items() if name not in passed_on}
    with naming_section(where, values):
        return target(**own, **supplied)
