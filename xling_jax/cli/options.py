"""Arguments from the options of a class and back; subcommands from a registry."""

import argparse
import dataclasses
import functools
import re
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

from xling_jax.files.untrusted import printable
from xling_jax.options import check_values, require_file, wrong_use
from xling_jax.registry import Registry, check_choice, did_you_mean


def add_options(parser: argparse.ArgumentParser, target: type) -> None:
    """Adds an argument for each field of a dataclass that `options.option` made.

    Its type follows from the field's: a tuple is a comma-separated list; a `Path` must exist, and
    a tuple of them is a list of arguments.
    """
    for field, kind, many in _options(target):
        argument = {"default": argparse.SUPPRESS, "help": _help(field)}
        argument |= field.metadata["argument"]
        if kind is bool:
            argument["action"] = argparse.BooleanOptionalAction
        elif kind is Path:
            argument = {"metavar": "FILE"} | argument
            argument |= {"nargs": "+", "action": "extend"} if many else {}
        else:
            argument["type"] = functools.partial(_read, argument.get("type", kind), many)
            if field.metadata["choices"] and not many:
                argument["choices"] = field.metadata["choices"]
        parser.add_argument(flag(field.name), **argument)


def options_from(
    args: argparse.Namespace, target: type, config: Mapping[str, Any] | None = None
) -> Any:
    """Builds a dataclass from the arguments of a parser that `add_options` has filled.

    Where the command line gives no value, that of `config` counts, whose keys must be options or in
    the attribute `config_keys` of the class. Raises `OptionError` if one is not, a value is out of
    range or a file does not exist.
    """
    known = [*(field.name for field, *_ in _options(target)), *getattr(target, "config_keys", ())]
    for key in config or ():
        with wrong_use(f"--config {args.config}"):
            check_choice("config key", key, known)
    values = {}
    for field, kind, many in _options(target):
        value = getattr(args, field.name, None)
        if value is None and (value := (config or {}).get(field.name)) is not None:
            value = tuple(value) if many and not isinstance(value, str) else value
        if value is not None and kind is Path:
            paths = [require_file(path, flag(field.name)) for path in (value if many else [value])]
            value = tuple(paths) if many else paths[0]
        if value is not None:
            values[field.name] = value
    options = target(**values)
    check_values(options, flag)
    return options


def flag(name: str) -> str:
    """`--some-name` of some_name."""
    return f"--{name.replace('_', '-')}"


def words(text: str) -> tuple[str, ...]:
    """`a, b` to ("a", "b")."""
    return tuple(word.strip() for word in text.split(",") if word.strip())


class LazyParser(argparse.ArgumentParser):
    """A parser that `fill` gives its arguments when it is first used; errors are one line."""

    def __init__(self, *, fill: Callable | None = None, **options: Any):
        options.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(**options)
        self._fill = fill

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parses as `ArgumentParser` does."""
        fill, self._fill = self._fill, None
        if fill:
            fill(self)
        self._words = args or ()
        parsed, rest = super().parse_known_args(args, namespace)
        if not hasattr(parsed, "parser"):  # of the command, not of those above it
            parsed.parser = self
        return parsed, rest

    def refuse(self, word: str) -> NoReturn:
        """Ends with the error for a word that the command does not take."""
        self.error(next(self._unknown(), f"unknown argument {word}"))

    def error(self, message: str) -> NoReturn:
        """Reports wrong use in one line, unlike `ArgumentParser`; exit status 2."""
        if "required" in message:
            message = next(self._unknown(), message)  # it may be why something is missing
        message = message.replace("invalid int value:", "must be a whole number; got")
        choice = re.match(r"argument [A-Z]+: invalid choice: '(.*?)' \(choose from (.*)\)", message)
        if choice and (hint := did_you_mean(choice[1], re.findall("[\\w-]+", choice[2]))):
            message = f"unknown command {choice[1]}; {hint}"
        self.exit(2, f"{self.prog}: error: {printable(message)} (see {self.prog} --help)\n")

    def _unknown(self) -> Iterator[str]:
        """Names the words that look like options but are not known."""
        for word in self._words:
            name = word.partition("=")[0]
            is_known = any(flag.startswith(name) for flag in self._option_string_actions)
            elsewhere = name in ("--debug", "--quiet") or name.startswith("--config.")
            if name.startswith("--") and not is_known and not elsewhere:
                hint = did_you_mean(name, self._option_string_actions)
                yield f"unknown argument {word}{hint and f'; {hint}'}"


def add_subcommands(
    parser: argparse.ArgumentParser,
    registry: Registry,
    fill: Callable[[str, argparse.ArgumentParser], None],
    *,
    dest: str,
) -> None:
    """Adds a subcommand for each name of a registry; what is not called is not imported.

    `fill` adds the arguments of a name to its parser; `dest` of the parsed arguments is the name.
    """
    subparsers = parser.add_subparsers(
        dest=dest, metavar=dest.upper(), required=True, parser_class=LazyParser
    )
    for name in registry:
        subparsers.add_parser(name, help=registry.help(name), fill=functools.partial(fill, name))


def _options(target: type) -> Iterator[tuple[dataclasses.Field, type, bool]]:
    """Each option, the type of its value or of its items, and whether it has items."""
    hints = typing.get_type_hints(target)
    for field in dataclasses.fields(target):
        if "argument" not in field.metadata:
            continue
        hint = hints[field.name]
        if isinstance(hint, types.UnionType):
            hint = next(part for part in typing.get_args(hint) if part is not type(None))
        many = typing.get_origin(hint) is tuple
        yield field, typing.get_args(hint)[0] if many else hint, many


def _help(field: dataclasses.Field) -> str:
    text, default = field.metadata["help"].replace("%", "%%"), field.default
    if default is None or default is False or default in ("", ()):
        return text
    shown = ",".join(map(str, default)) if isinstance(default, tuple) else default
    return f"{text} (default: {'yes' if default is True else shown})"


def _read(read: Callable[[str], Any], many: bool, text: str) -> Any:
    """The value of an option from its text."""
    items = []
    for word in words(text) if many else (text,):
        try:
            items.append(read(word))
        except ValueError as error:
            noun = {int: "a whole number", float: "a number"}.get(read)
            text = f"must be {noun}; got {word!r}" if noun else str(error)
            raise argparse.ArgumentTypeError(text) from error
    if not items:
        raise argparse.ArgumentTypeError("must have at least one value")
    return tuple(items) if many else items[0]
