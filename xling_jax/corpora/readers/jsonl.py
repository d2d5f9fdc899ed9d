"""JSON lines: an object a line, whose fields are columns; those of an object inside, `a.b`."""

import contextlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from xling_jax.corpora.readers.tables import Cells, Table, TableReader, wrong_row
from xling_jax.files.lines import BrokenLine, Line, read_line_blocks
from xling_jax.files.untrusted import one_line, parse_json


class JsonlReader(TableReader):
    """`jsonl:GLOB[?columns=…]`, such as `{"de": …, "en": …}` or WMT's `{"translation": {…}}`."""

    def open(self, path: str) -> Table:
        return JsonlTable(path)


class JsonlTable(Table):
    """A file of objects; the fields of the first thousand are the columns."""

    def __init__(self, path: str):
        self.name, self.heading, fields = path, f"{path}: the first objects", {}
        for number, line in itertools.islice(self._lines(), 1000):
            if isinstance(line, BrokenLine) or not line.strip():
                continue
            where = f"{path}:{number}"
            with contextlib.suppress(*(ValueError,) if fields else ()):  # later: a wrong row
                if not line.lstrip().startswith("{"):
                    raise ValueError(
                        f"{where}: a line must be a JSON object; found {line!r:.40}; write the "
                        "items of an array a line each: jq -c .[]"
                    )
                fields |= _fields(parse_json(line, where, way_out="an object must be in one line"))
        if not fields:
            raise ValueError(f"{path}: must hold a JSON object in each line; the file is empty")
        self.columns = [*fields]

    def _lines(self) -> Iterator[tuple[int, Line]]:
        return enumerate(itertools.chain.from_iterable(read_line_blocks(self.name)), 1)

    def rows(self, columns: Sequence[int]) -> Iterator[Cells]:
        names = [self.columns[index] for index in columns]
        for number, line in self._lines():
            if isinstance(line, BrokenLine):
                yield Cells(number, (), line.problem)
                continue
            if not line.strip():
                yield Cells(number, [""] * len(names))
                continue
            try:
                fields = dict(_fields(parse_json(line, "line")))
            except (ValueError, AttributeError) as error:
                yield wrong_row(number, f"must be a JSON object ({one_line(error, 100)})")
                continue
            if fields.keys().isdisjoint(names):
                found = ", ".join(fields)
                yield wrong_row(number, f"must have {' or '.join(names)}; found {found:.100}")
            else:
                yield Cells(number, [fields.get(name) for name in names])


def _fields(value: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, item in value.items():
        if isinstance(item, dict):
            yield from ((f"{name}.{inner}", text) for inner, text in item.items())
        else:
            yield name, item
