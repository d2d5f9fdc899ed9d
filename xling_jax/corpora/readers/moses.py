"""Moses files: plain text, one file per language, whose lines i translate one another."""

import glob
import itertools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence

from xling_jax.corpora.readers.base import Reader, Row
from xling_jax.files.lines import COMPRESSED_SUFFIXES, PROBLEM_RULES, read_line_blocks
from xling_jax.files.untrusted import open_archive
from xling_jax.text import languages as languages_lib

_END = None  # pads the shorter files; a line is a string or a `BrokenLine`


class MosesReader(Reader):
    """`moses:PREFIX`: the files `PREFIX.LANGUAGE`, plain or compressed.

    `PREFIX@de-en` takes only these two languages.
    """

    def __init__(self, spec: str, where: str):
        super().__init__(spec, where)
        prefix, at, pair = where.rpartition("@")
        has_pair = at and os.sep not in pair
        self._prefix = prefix if has_pair else where
        self._pair = languages_lib.parse_pair(pair) if has_pair else None

    def languages(self) -> tuple[str, ...]:
        """Those of the pair, or all for which there are files."""
        if self._pair:
            return self._pair
        paths = glob.glob(f"{glob.escape(self._prefix)}.*")
        codes = {path[len(self._prefix) + 1 :].split(".")[0] for path in paths}
        return tuple(sorted(filter(languages_lib.is_code, codes)))

    def read(self, languages: Sequence[str]) -> Iterator[Row]:
        """Reads the files in lockstep.

        Where a line of one language is broken the whole row is, and names that file.
        """
        return read_moses(self._find(languages))

    def files(self, languages: Sequence[str] | None = None) -> list[str]:
        """Lists the files of the languages; by default those of all languages there are."""
        return sorted(self._find(languages or self.languages()).values())

    def moved(self, move: Callable[[str], str]) -> str:
        """As `Reader.moved`; the pattern matches the files of all languages."""
        prefix = move(f"{self._prefix}.*").removesuffix(".*")
        return prefix + self.where[len(self._prefix) :]

    def _find(self, languages: Sequence[str]) -> dict[str, str]:
        """Language -> path, at least two."""
        for code in self._pair or ():
            languages_lib.check_known(code, languages, self.spec)
        files = {code: _find_file(f"{self._prefix}.{code}") for code in self._pair or languages}
        found = {language: path for language, path in files.items() if path}
        if len(found) > 1:
            return found
        raise FileNotFoundError(
            f"{self.spec}: needs files {self._prefix}.LANGUAGE, plain or "
            f"{' '.join(COMPRESSED_SUFFIXES)}, for at least two of {', '.join(files)}; found "
            f"{', '.join(found.values()) or 'none'}"
        )


class MosesZipReader(Reader):
    """`moses:GLOB.zip`, archives as OPUS has them, `de-en.txt.zip` with `X.de-en.de` and so on."""

    def read(self, languages: Sequence[str]) -> Iterator[Row]:
        """Reads the members in lockstep, as `MosesReader.read`."""
        found = [self._find(path, languages) for path in self.files()]
        return itertools.chain.from_iterable(map(read_moses, found))

    def _find(self, path: str, languages: Sequence[str]) -> dict[str, str]:
        """Language -> `path!member`, of members that differ only in their endings."""
        with open_archive(path) as archive:
            names = archive.namelist()
        stems: dict[str, dict[str, str]] = {}
        for name in names:
            stem, _, tag = name.rpartition(".")
            if code := languages_lib.match_code(tag, languages):
                stems.setdefault(stem, {}).setdefault(code, f"{path}!{name}")
        if not (found := max(stems.values(), key=len, default={})) or len(found) < 2:
            raise ValueError(
                f"{path}: needs members NAME.LANGUAGE for at least two of {', '.join(languages)}; "
                f"found {', '.join(names) or 'none':.200}"
            )
        return {code: found[code] for code in languages if code in found}


def _find_file(name: str) -> str | None:
    names = (name + suffix for suffix in ("", *COMPRESSED_SUFFIXES))
    return next(filter(os.path.isfile, names), None)


def read_moses(paths: Mapping[str, str]) -> Iterator[Row]:
    """Reads files, language -> path, in lockstep, see `MosesReader.read`."""
    streams = [itertools.chain.from_iterable(read_line_blocks(path)) for path in paths.values()]
    first_path = next(iter(paths.values()))
    without_text, number = set(paths), 0
    problems: dict[str, str] = {}
    for number, lines in enumerate(itertools.zip_longest(*streams, fillvalue=_END), 1):
        texts, broken = {}, None
        for language, line in zip(paths, lines):
            if type(line) is str:
                if line and not line.isspace():
                    texts[language] = line
            elif line is _END:
                raise _unequal_counts(paths, lines, number, streams)
            else:
                broken = broken or (language, line.problem)
                problems.setdefault(language, line.problem)
        if without_text:
            without_text.difference_update(texts)
        if broken:
            yield Row({}, first_path, number, broken[1], paths[broken[0]])
            continue
        yield Row(texts, first_path, number)
    for language, path in paths.items():
        if language in without_text:
            if language in problems:
                raise ValueError(f"{path}: {PROBLEM_RULES[problems[language]]}")
            state = "no line holds text" if number else "the file is empty"
            raise ValueError(f"{path}: {state}; leave it out of the corpus")


def _unequal_counts(
    paths: Mapping[str, str], lines: Sequence, number: int, streams: Sequence[Iterator]
) -> ValueError:
    """The error where the shortest file has ended; counts what is left of the longer ones."""
    found = []
    for path, line, stream in zip(paths.values(), lines, streams):
        count = number - 1 if line is _END else number + sum(1 for _ in stream)
        found.append(f"{path} has {count:,}")
    return ValueError(
        f"the files of a Moses corpus must have the same number of lines; {', '.join(found)}; "
        "fetch them again, or align them"
    )
