"""Columns of Apache Arrow: Parquet files, and data sets of Hugging Face."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xling_jax.corpora.readers.tables import Cells, Table, TableReader
from xling_jax.files.lines import check_format
from xling_jax.files.untrusted import in_one_line
from xling_jax.registry import check_choice, import_extra

if TYPE_CHECKING:
    import pyarrow

_BATCH_ROWS = 1024
_MAGIC = b"PAR1"


class ParquetReader(TableReader):
    """`parquet:GLOB[?columns=…]`."""

    def open(self, path: str) -> Table:
        with open(path, "rb") as file:
            check_format(path, file.read(64), _MAGIC)
        parquet = import_extra("pyarrow.parquet", "data", path)
        with in_one_line(path, "fetch it again"):
            file = parquet.ParquetFile(path)
        batches = lambda names: file.iter_batches(_BATCH_ROWS, columns=[*names])
        return ArrowTable(path, file.schema_arrow, batches)


class HuggingFaceReader(TableReader):
    """`hf:PLACE[?split=train&config=NAME&columns=…]`, a data set of Hugging Face's `datasets`.

    PLACE is a directory that `save_to_disk` wrote, one of data files, or the name of a data set,
    which is taken from the cache if it is there and otherwise streamed.
    """

    defaults = {**TableReader.defaults, "split": "train", "config": ""}

    def files(self, languages: Sequence[str] | None = None) -> list[str]:
        """The files of a directory; none of a data set by name, which its name defines."""
        found = [str(p) for p in sorted(Path(self.path).rglob("*")) if p.is_file()]
        if not found and (os.path.isabs(self.path) or self.path.count("/") > 1):
            raise FileNotFoundError(f"{self.spec}: no such directory")
        return found

    def moved(self, move: Callable[[str], str]) -> str:
        """As `Reader.moved`; a data set by name stays where it is."""
        is_place = "://" in self.path or os.path.exists(self.path)
        return super().moved(move) if is_place else self.where

    def tables(self) -> list[Table]:
        datasets = import_extra("datasets", "data", self.spec)
        split = self.options["split"]
        with in_one_line(self.spec, "check the name, the config and the split"):
            found = self._load(datasets, split)
        if isinstance(found, dict):
            check_choice(f"{self.spec}: split", split, found)
            found = found[split]
        arrow = found.with_format("arrow")
        schema = found.features.arrow_schema if found.features else None
        if schema is None:  # streamed files whose columns are not known before they are read
            schema = next(iter(arrow.iter(1))).schema
        return [ArrowTable(self.name, schema, lambda _: arrow.iter(_BATCH_ROWS))]

    def _load(self, datasets: Any, split: str) -> Any:
        place, config = self.path, self.options["config"] or None
        if any(os.path.exists(f"{place}/{name}.json") for name in ("state", "dataset_dict")):
            return datasets.load_from_disk(place)
        if os.path.isdir(place):
            return datasets.load_dataset(place, config, split=split, streaming=True)
        try:
            cached = datasets.DownloadConfig(local_files_only=True)
            return datasets.load_dataset(place, config, split=split, download_config=cached)
        except Exception:  # of many kinds, for what is not in the cache
            return datasets.load_dataset(place, config, split=split, streaming=True)


class ArrowTable(Table):
    """Batches of columns; a field of a struct is a column `struct.field`."""

    def __init__(
        self,
        name: str,
        schema: pyarrow.Schema,
        batches: Callable[[Sequence[str]], Iterable[pyarrow.RecordBatch | pyarrow.Table]],
    ):
        self.name, self._batches = name, batches
        self.heading = f"{name}: its columns"
        self.columns = _flat(schema.empty_table()).column_names

    def rows(self, columns: Sequence[int]) -> Iterator[Cells]:
        """See `Table.rows`. ValueError if the file is damaged."""
        import pyarrow as pa

        names = [self.columns[index] for index in columns]
        numbers = itertools.count(1)
        with in_one_line(self.name, "fetch it again"):
            for batch in self._batches(names):
                if isinstance(batch, pa.RecordBatch):
                    batch = pa.Table.from_batches([batch])
                flat = _flat(batch)
                rows = zip(*(flat.column(name).to_pylist() for name in names))
                yield from (Cells(number, values) for values, number in zip(rows, numbers))


def _flat(table: pyarrow.Table) -> pyarrow.Table:
    import pyarrow as pa

    while any(pa.types.is_struct(kind) for kind in table.schema.types):
        table = table.flatten()
    return table
