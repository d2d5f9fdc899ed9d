"""Moses files: plain text, one file per language, whose lines i translate one another."""

import glob
import itertools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence

from xling_jax.corpora.readers.base import Lines, Reader, Row
from xling_jax.files.lines import COMPRESSED_SUFFIXES, read_line_blocks
from xling_jax.text import languages as languages_lib

_END = None  # pads the shorter files; a line is a string or a `BrokenLine`


class MosesReader(Reader):
    """`moses:PREFIX`: the files `PREFIX.LANGUAGE`, plain or compressed.

    `PREFIX@de-en` takes only these two languages; their files may then also be called
    `PREFIX.de-en.de` (or `PREFIX.en-de.de`) and so on.
    """

    def __init__(self, spec: str, where: str):
        super().__init__(spec, where)
        prefix, at, pair = where.rpartition("@")
        has_pair = at and os.sep not in pair
        self._prefix = prefix if has_pair else where
        self._pair = languages_lib.parse_pair(pair) if has_pair else None

    def read(self, languages: Sequence[str]) -> Iterator[Row]:
        """Reads the files in lockstep.

        Where a line of one language is broken the whole row is, and names that file.

        Raises:
            ValueError: at the end, if the numbers of lines differ or a file holds no text.
            FileNotFoundError: if there are files for fewer than two of the languages.
        """
        return read_moses(self.find(languages))

    def files(self, languages: Sequence[str] | None = None) -> list[str]:
        """Lists the files of the languages; by default those of all languages there are."""
        if not (languages or self._pair):
            paths = glob.glob(f"{glob.escape(self._prefix)}.*")
            codes = {path[len(self._prefix) + 1 :].split(".")[0] for path in paths}
            languages = sorted(filter(languages_lib.is_code, codes))
        return sorted(self.find(languages or self._pair).values())

    def moved(self, move: Callable[[str], str]) -> str:
        """As `Reader.moved`; the pattern matches the files of all languages."""
        prefix = move(f"{self._prefix}.*").removesuffix(".*")
        return prefix + self.where[len(self._prefix) :]

    def find(self, languages: Sequence[str]) -> dict[str, str]:
        """Language -> path, at least two. Raises as `read`."""
        prefixes = [self._prefix]
        if self._pair:
            source, target = self._pair
            for code in self._pair:
                languages_lib.check_known(code, languages, self.spec)
            languages = self._pair
            prefixes += [f"{self._prefix}.{source}-{target}", f"{self._prefix}.{target}-{source}"]
        for prefix in prefixes:
            files = {language: _find_file(f"{prefix}.{language}") for language in languages}
            found = {language: path for language, path in files.items() if path}
            if len(found) > 1:
                return found
        raise FileNotFoundError(
            f"{self.spec}: needs files {self._prefix}.LANGUAGE, plain or "
            f"{' '.join(COMPRESSED_SUFFIXES)}, for at least two of {', '.join(languages)}; found "
            f"{', '.join(found.values()) or 'none'}"
        )


def _find_file(name: str) -> str | None:
    names = (name + suffix for suffix in ("", *COMPRESSED_SUFFIXES))
    return next(filter(os.path.isfile, names), None)


def read_moses(paths: Mapping[str, str]) -> Iterator[Row]:
    """Reads files, language -> path, in lockstep, see `MosesReader.read`."""
    streams = [itertools.chain.from_iterable(read_line_blocks(path)) for path in paths.values()]
    without_text, num_rows = set(paths), 0
    for row in _join(streams, paths, first_line=1):
        num_rows += 1
        if without_text:
            without_text.difference_update(row.texts)
        yield row
    for language, path in paths.items():
        if language in without_text:
            raise no_text(path, num_rows)


def read_moses_lines(lines: Lines, languages: Sequence[str]) -> Iterator[Row]:
    """Reads lines of files, one of each language; whether they hold text is not checked."""
    blocks = map(read_line_blocks, lines.copies)
    streams = [itertools.islice(itertools.chain.from_iterable(b), 1, None) for b in blocks]
    paths = dict(zip(languages, lines.copies.values(), strict=True))
    return _join(streams, paths, lines.first_line)


def no_text(path: str, num_lines: int) -> ValueError:
    """The error for a file without text."""
    state = "no line holds text" if num_lines else "the file is empty"
    return ValueError(f"{path}: {state}; leave it out of the corpus")


def unequal_counts(counts: Mapping[str, int]) -> ValueError:
    """The error for files, path -> lines, that cannot be translations line by line."""
    found = [f"{path} has {count:,}" for path, count in counts.items()]
    return ValueError(
        f"the files of a Moses corpus must have the same number of lines; {', '.join(found)}; "
        "fetch them again, or align them"
    )


def _join(streams: Sequence[Iterator], paths: Mapping[str, str], first_line: int) -> Iterator[Row]:
    """Joins lines of files, language -> path, whose numbers begin with `first_line`."""
    first_path = next(iter(paths.values()))
    line_number = first_line - 1
    for lines in itertools.zip_longest(*streams, fillvalue=_END):
        line_number += 1
        texts = {}
        broken = None
        for language, line in zip(paths, lines):
            if type(line) is str:
                if line and not line.isspace():
                    texts[language] = line
            elif line is _END:
                raise unequal_counts(_count_lines(paths, lines, line_number, streams))
            else:
                broken = broken or (language, line.problem)
        if broken:
            yield Row({}, first_path, line_number, broken[1], paths[broken[0]])
            continue
        yield Row(texts, first_path, line_number)


def _count_lines(
    paths: Mapping[str, str], lines: Sequence, line_number: int, streams: Sequence[Iterator]
) -> dict[str, int]:
    """Counts what is left of the longer files, where the shortest has ended."""
    return {
        path: line_number - 1 if line is _END else line_number + sum(1 for _ in stream)
        for path, line, stream in zip(paths.values(), lines, streams)
    }
