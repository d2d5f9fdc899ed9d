"""Translation datasets of TensorFlow Datasets, prepared on first use.

Datasets prepared here are stored as array_record, which is read without TensorFlow. One that is
already in the data directory as tfrecord is read as it is, which needs TensorFlow.
"""

import difflib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from xling_jax.corpora.readers.base import Reader, Row
from xling_jax.files.lines import BrokenLine, decode_line
from xling_jax.files.untrusted import in_one_line, one_line
from xling_jax.registry import did_you_mean, import_extra

if TYPE_CHECKING:
    import tensorflow_datasets as tfds

_WHERE = re.compile(
    r"(?P<name>[\w.-]+(/[\w.-]+)?)(:(?P<version>\d+\.\d+\.\d+))?(:(?P<split>[^?]+))?"
)
# One at a time, array_record reads a third as fast.
_EXAMPLES_A_READ = 1024
_MAX_ERROR_LENGTH = 300


class TfdsReader(Reader):
    """`tfds:NAME[/CONFIG][:VERSION][:SPLIT][?data_dir=DIR]`, a dataset of translations.

    The split is "train" by default, the directory that of TFDS (`TFDS_DATA_DIR`). An example may be
    `{language: text}` (`features.Translation`, or plain text features), the lists of
    `features.TranslationVariableLanguages`, or hold one of these as a feature.
    """

    defaults = {"data_dir": ""}

    def __init__(self, spec: str, where: str):
        super().__init__(spec, where)
        match = _WHERE.fullmatch(self.path)
        if not match:
            raise ValueError(
                f"{spec}: must be tfds:NAME[/CONFIG][:VERSION][:SPLIT][?data_dir=DIR], such as "
                "tfds:para_crawl/enfr"
            )
        self._name, self._version = match["name"], match["version"]
        self._split, self._data_dir = match["split"] or "train", self.options["data_dir"] or None

    def read(self, languages: Sequence[str]) -> Iterator[Row]:
        """Reads a row from each example; prepares the dataset first if necessary."""
        builder = self._make_builder()
        if hasattr(builder, "check_archives") and not builder.is_prepared():
            builder.check_archives()
        return _read_rows(builder, self._name, self._split, languages)

    def files(self, languages: Sequence[str] | None = None) -> list[str]:
        """None: its name and version define a dataset."""
        return []

    def moved(self, move: Callable[[str], str]) -> str:
        """WHERE as it is: TFDS finds datasets by itself."""
        return self.where

    def _make_builder(self) -> "tfds.core.DatasetBuilder":
        """The builder of the dataset, in a format that can be read without TensorFlow."""
        tfds = import_extra("tensorflow_datasets", "train", f"tfds:{self._name}:")
        from xling_jax.corpora import tfds_builders  # noqa: F401, registers ours

        dataset, _, config = self._name.partition("/")
        full_name = f"{self._name}:{self._version}" if self._version else self._name
        try:
            configs = tfds.builder_cls(dataset).builder_configs
        except tfds.core.DatasetNotFoundError:
            configs = {}  # TFDS may still find the files of a dataset without code
        # TFDS would take the first of several configurations, and so the wrong languages.
        if configs and config not in configs:
            near = difflib.get_close_matches(config, configs, n=8, cutoff=0.3) or [*configs][:8]
            raise ValueError(
                f"tfds:{full_name}: must name a configuration of {dataset}, such as "
                f"{', '.join(near)}; found {config!r}"
            )
        try:
            builder = tfds.builder(full_name, data_dir=self._data_dir)
            if builder.is_prepared():
                return builder
            return tfds.builder(full_name, data_dir=self._data_dir, file_format="array_record")
        except tfds.core.DatasetNotFoundError as error:
            # Without community datasets, whose list TFDS fetches from the network.
            known = tfds.list_builders(with_community_datasets=False)
            raise ValueError(
                f"tfds:{full_name}: unknown dataset; {did_you_mean(dataset, known)}"
            ) from error
        except Exception as error:  # many kinds: a wrong version, damaged metadata
            raise ValueError(f"tfds:{full_name}: {one_line(error, _MAX_ERROR_LENGTH)}") from error


def _read_rows(
    builder: "tfds.core.DatasetBuilder", name: str, split: str, languages: Sequence[str]
) -> Iterator[Row]:
    if not builder.is_prepared():
        with in_one_line(f"tfds:{name}", "it could not be prepared"):
            builder.download_and_prepare()
    file, has_text = f"tfds:{name}", False
    # A split may be a slice, "train[:10%]".
    if split.split("[")[0] not in builder.info.splits:
        raise ValueError(f"{file}: no split {split!r}; it has {', '.join(builder.info.splits)}")
    with in_one_line(file, f"remove {builder.data_path}, so that it is prepared again"):
        for line, example in enumerate(_read_examples(builder, split), 1):
            row = _make_row(example, file, line, languages)
            has_text = has_text or bool(row.texts)
            yield row
    if not has_text:
        raise ValueError(
            f"{file}: no example has text in {' or '.join(languages)}; its features are "
            f"{', '.join(builder.info.features)}"
        )


def _read_examples(builder: "tfds.core.DatasetBuilder", split: str) -> Iterator[Mapping[str, Any]]:
    import tensorflow_datasets as tfds

    formats = tfds.core.FileFormat.with_random_access()
    if not formats.intersection(builder.info.available_file_formats()):
        yield from tfds.as_numpy(builder.as_dataset(split=split))
        return
    # The generic decoder takes ten times as long for strings as parsing the protocol buffer.
    is_plain = type(builder.info.features) is tfds.features.Translation
    is_plain = is_plain and builder.info.file_format == tfds.core.FileFormat.ARRAY_RECORD
    method = tfds.decode.DeserializeMethod
    source = builder.as_data_source(
        split=split,
        deserialize_method=method.RAW_BYTES if is_plain else method.DESERIALIZE_AND_DECODE,
    )
    for start in range(0, len(source), _EXAMPLES_A_READ):
        indices = range(start, min(start + _EXAMPLES_A_READ, len(source)))
        examples = source.__getitems__(list(indices))
        yield from map(_parse_example, examples) if is_plain else examples


def _parse_example(serialized: bytes) -> dict[str, bytes]:
    """Returns the byte features of a serialized `tf.train.Example`."""
    from tensorflow_datasets.proto import tf_example_pb2

    example = tf_example_pb2.Example.FromString(serialized)
    return {
        name: feature.bytes_list.value[0]
        for name, feature in example.features.feature.items()
        if feature.bytes_list.value
    }


def _make_row(example: Mapping[str, Any], file: str, line: int, languages: Sequence[str]) -> Row:
    texts = {}
    for language, value in _find_translations(example, languages).items():
        text = decode_line(value)
        if isinstance(text, BrokenLine):
            return Row({}, file, line, text.problem)
        if text and not text.isspace():
            texts[language] = text
    return Row(texts, file, line)


def _find_translations(example: Mapping[str, Any], languages: Sequence[str]) -> dict[str, bytes]:
    """Returns the texts of an example, of the first alternative where a language has several."""
    if found := {code: example[code] for code in languages if type(example.get(code)) is bytes}:
        return found
    if "language" in example and "translation" in example:
        for code, text in zip(example["language"], example["translation"]):
            language = code.decode("utf-8", "replace")
            if language in languages:
                found.setdefault(language, bytes(text))
        return found
    for value in example.values():
        if isinstance(value, Mapping):
            found = found or _find_translations(value, languages)
    return found
