"""From the batch plan and token shards to padded arrays, with or without TensorFlow.

Both readers give identical batches; each process gets its rows of the global batch.
"""

import concurrent.futures
import dataclasses
import functools
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import numpy as np

from xling_jax.corpora.row_vectors import RowVectors
from xling_jax.corpora.shards import PairTokens, pair_name
from xling_jax.files.workers import ahead
from xling_jax.options import check_number
from xling_jax.registry import check_choice, import_extra
from xling_jax.text.languages import parse_pair
from xling_jax.train.batch_plan import (
    MOST_BUCKETS,
    BatchPlan,
    Bucket,
    LengthCounts,
    MicroBatch,
    choose_bucket_lengths,
    make_buckets,
    padding_efficiency,
)
from xling_jax.train.options import Epoch
from xling_jax.train.terms.term import TEACHERS

Batch = dict[str, np.ndarray]
READERS = ("auto", "tf.data", "numpy")
# Micro-batches that are assembled at a time, and kept in reserve.
_PARALLEL, _RESERVE = 2, 8


@dataclasses.dataclass(frozen=True)
class Direction:
    """A pair as the plan draws it: `source` to `target`, and back if `both`."""

    source: str
    target: str
    both: bool = False

    def __str__(self) -> str:
        return f"{self.source}{'<->' if self.both else '->'}{self.target}"


@dataclasses.dataclass(frozen=True)
class DataOptions:
    """The `data` section of a config: the text, and how it becomes batches.

    Attributes:
        pairs: `source-target` codes, the directions to train; `de-de` for text in one language,
            rows with no other, which is then its own translation.
        corpora: `KIND:WHERE` each, see `corpora.readers`.
        exclude: files whose texts are left out of training.
        hold_out_evaluation: leave out the texts of the files that the `evaluation` section names
            as well.
        validation_pairs: of each language pair, sentence pairs to take out of the corpora for the
            validation loss.
        max_broken_share: of the rows of a corpus that may be broken: not UTF-8, or not of as many
            cells as the others. They are dropped and counted; more are an error.
        prompt: goes before every text of training and evaluation; by default that of
            `train.model_init`.
        sampling_exponent: pairs are drawn with probability proportional to rows ** exponent: 0 is
            uniform, as in LASER and T-LASER, 1 proportional, 1 / T a temperature T.
        both_directions: train a-b and b-a in the same batch if both are listed.
        bucket_lengths: padded lengths, in tokens; empty to choose the fewest with which 85 % of the
            tokens are real, see `batch_plan.choose_bucket_lengths`. A run keeps those it began
            with.
        longest_bucket: tokens of the longest bucket that may be chosen.
        max_tokens: of a micro-batch: longer side times rows, padding included; or
        batch_size: rows of a micro-batch at every length, for contrastive objectives.
        accumulation_steps: micro-batches, each of one pair, per update.
        batch_multiple: divides the number of rows; the number of devices must divide it.
        truncate: cut longer sentences to the longest bucket instead of dropping them.
        reader: `tf.data`, `numpy`, or `auto` for the faster one, which is `numpy`: it needs no
            seconds to import TensorFlow, and gives more than twice as many batches.

    Raises:
        ValueError: for sizes that allow no batches.
    """

    pairs: tuple[str, ...]
    corpora: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    hold_out_evaluation: bool = True
    validation_pairs: int = 0
    max_broken_share: float = 0.1
    prompt: str = ""
    sampling_exponent: float = 0.0
    both_directions: bool = False
    bucket_lengths: tuple[int, ...] = ()
    longest_bucket: int = 128
    max_tokens: int = 0
    batch_size: int = 0
    accumulation_steps: int = 1
    batch_multiple: int = 8
    truncate: bool = False
    reader: str = "auto"

    def __post_init__(self):
        check_choice("data.reader", self.reader, READERS)
        check_number(self.batch_multiple, "data.batch_multiple", 1)
        check_number(self.accumulation_steps, "data.accumulation_steps", 1, below=1e5)
        check_number(self.sampling_exponent, "data.sampling_exponent", 0, below=10)
        check_number(self.longest_bucket, "data.longest_bucket", 3)
        self.directions()
        self.buckets()

    @property
    def limit(self) -> int:
        """Tokens of the longest sentence."""
        return self.bucket_lengths[-1] if self.bucket_lengths else self.longest_bucket

    def buckets(self, lengths: Sequence[int] = ()) -> tuple[Bucket, ...]:
        """The shapes of micro-batches of such lengths, by default `bucket_lengths` or the limit."""
        sizes = (self.max_tokens, self.batch_multiple, self.batch_size)
        return make_buckets(lengths or self.bucket_lengths or (self.limit,), *sizes)

    @property
    def has_both(self) -> bool:
        """True if there are micro-batches that train both directions of a pair."""
        return any(direction.both for direction in self.directions())

    def directions(self) -> tuple[Direction, ...]:
        """The entries of the batch plan; ValueError for a malformed or repeated pair.

        With `both_directions`, `en-es` and `es-en` become one entry whose batches train both.
        """
        parsed = [parse_pair(pair, allow_same=True) for pair in self.pairs]
        directions: list[Direction] = []
        for source, target in parsed:
            if parsed.count((source, target)) > 1:
                raise ValueError(f"data.pairs names {source}-{target} twice; name each pair once")
            both = self.both_directions and source != target and (target, source) in parsed
            if not both or Direction(target, source, both=True) not in directions:
                directions.append(Direction(source, target, both))
        return tuple(directions)


class TranslationBatches:
    """Micro-batches of parallel sentences as padded arrays; `plan` says which rows form number n.

    `efficiency` is the expected share of real tokens, special ones included.

    Token shards are in `directory`, `W/data`; their ids must be below `vocab_size`, if it is given.
    The ids `prefix` and `suffix` are put around every sentence (`<s>` and `</s>` for T-LASER); a
    language's id is its position in `languages`. This process reads its slice of each batch's rows,
    and of `teachers` (`source_teacher`, `target_teacher`) vectors of size `width`. At most
    `most_buckets` lengths are chosen, if the data options name none. ValueError if vectors are
    missing. `process_count` must divide `data.batch_multiple`.
    """

    def __init__(
        self,
        directory: str | Path,
        data: DataOptions,
        *,
        languages: Sequence[str],
        prefix: Sequence[int],
        suffix: Sequence[int],
        pad_id: int,
        vocab_size: int | None = None,
        seed: int,
        process_index: int = 0,
        process_count: int = 1,
        teachers: Collection[str] = (),
        width: int = 0,
        most_buckets: int = MOST_BUCKETS,
    ):
        self.directions = data.directions()
        self._language_id = {language: number for number, language in enumerate(languages)}
        self._prefix, self._suffix, self._pad_id = tuple(prefix), tuple(suffix), pad_id
        self._process = (process_index, process_count)
        names = [pair_name(d.source, d.target) for d in self.directions]
        corpora = {name: PairTokens(Path(directory) / name, vocab_size) for name in set(names)}
        self._corpora = [corpora[name] for name in names]
        self._vectors = [
            {
                name: RowVectors(Path(directory), pair, side, len(corpora[pair]), width)
                for name, side in (("source_teacher", d.source), ("target_teacher", d.target))
                if name in teachers
            }
            for pair, d in zip(names, self.directions)
        ]
        self._specials = len(self._prefix) + len(self._suffix)
        lengths, counts = {}, {}
        for d, corpus in zip(self.directions, self._corpora):
            sides = np.stack([corpus.lengths[d.source], corpus.lengths[d.target]]) + self._specials
            if data.truncate:
                sides = np.minimum(sides, data.limit)
            lengths[str(d)] = longer = sides.max(axis=0)
            fits = longer <= data.limit
            if fits.any():  # otherwise the plan refuses the pair
                counts[str(d)] = LengthCounts(np.bincount(longer[fits]), sides[:, fits].sum() / 2)
        chosen = data.bucket_lengths
        if counts and not chosen:
            chosen = choose_bucket_lengths(
                counts, data.buckets, data.sampling_exponent, most_buckets
            )
        buckets = data.buckets(chosen)
        exponent = data.sampling_exponent
        self.plan = BatchPlan(lengths, buckets, seed=seed, sampling_exponent=exponent)
        self.efficiency = padding_efficiency(counts, buckets, exponent)

    def _tokens(self, corpus: PairTokens, language: str, rows: np.ndarray, width: int):
        """[rows, width] int32: prefix, tokens, suffix, padding; only padding for row -1."""
        start, end = len(self._prefix), width - len(self._suffix)
        out = np.full((len(rows), width), self._pad_id, np.int32)
        out[:, start:end] = corpus.gather(language, rows, end - start, self._pad_id)
        real = np.flatnonzero(rows >= 0)
        out[real, :start] = self._prefix
        end = start + np.minimum(corpus.lengths[language][rows[real]], end - start)
        for offset, token in enumerate(self._suffix):
            out[real, end + offset] = token
        return out

    def __getitem__(self, index: int) -> Batch:
        """This process's rows of micro-batch `index`, see `read`."""
        return self.read(self.plan[index])

    def read(self, entry: MicroBatch) -> Batch:
        """This process's rows of an entry of the plan, in as many of these as training reads.

        source_tokens and target_tokens [rows, length] int32, special tokens included;
        source_language and target_language [rows] int32; source_teacher and target_teacher [rows,
        width] float32.
        """
        process, count = self._process
        share = entry.bucket.batch_size // count
        rows = entry.rows[process * share : (process + 1) * share]
        direction = self.directions[entry.pair]
        corpus, width = self._corpora[entry.pair], entry.bucket.length
        ids = lambda language: np.full(len(rows), self._language_id[language], np.int32)
        batch = {
            "source_tokens": self._tokens(corpus, direction.source, rows, width),
            "target_tokens": self._tokens(corpus, direction.target, rows, width),
            "target_language": ids(direction.target),
        }
        batch |= {"source_language": ids(direction.source)} if direction.both else {}
        vectors = self._vectors[entry.pair]
        return batch | {name: side.gather(rows) for name, side in vectors.items()}

    def epoch(self, accumulation_steps: int) -> Epoch:
        """Length of an epoch, given the number of micro-batches per update."""
        return Epoch(self.plan.epoch / accumulation_steps, sum(self.plan.num_rows.values()))

    def describe(self, start: int, stop: int) -> str:
        """Names the language pairs of micro-batches [start, stop)."""
        directions = {str(self.directions[self.plan[i].pair]) for i in range(start, stop)}
        return ", ".join(sorted(directions))


def read_batches(
    batches: TranslationBatches, start: int, stop: int, *, reader: str = "auto"
) -> Iterator[Batch]:
    """Yields micro-batches [start, stop) in order, read ahead in the background.

    See `DataOptions` for `reader`.
    """
    read = _read_tf if reader == "tf.data" else _read_numpy
    return read(batches, start, stop)


def _read_numpy(batches: TranslationBatches, start: int, stop: int) -> Iterator[Batch]:
    with concurrent.futures.ThreadPoolExecutor(_PARALLEL) as pool:
        submit = functools.partial(pool.submit, batches.__getitem__)
        yield from ahead(submit, range(start, stop), _RESERVE)


def _read_tf(batches: TranslationBatches, start: int, stop: int) -> Iterator[Batch]:
    purpose = "data.reader='tf.data', unlike data.reader='numpy',"
    tf = import_extra("tensorflow", "train", purpose)
    tf.config.set_visible_devices([], "GPU")  # the GPU belongs to JAX

    types = dict.fromkeys(("source_tokens", "target_tokens", "target_language"), np.int32)
    types |= {"source_language": np.int32, **dict.fromkeys(TEACHERS, np.float32)}

    def read(index):
        batch = batches[int(index)]
        return [batch.get(name, np.zeros(0, dtype)) for name, dtype in types.items()]

    def load(index):
        return tf.numpy_function(read, [index], [*types.values()], stateful=False)

    dataset = tf.data.Dataset.range(start, stop)
    dataset = dataset.map(load, num_parallel_calls=_PARALLEL, deterministic=True)
    for arrays in dataset.prefetch(_RESERVE).as_numpy_iterator():
        yield {name: array for name, array in zip(types, arrays) if array.size}


def plan_summary(batches: TranslationBatches) -> str:
    """The plan in numbers for the log."""
    plan = batches.plan
    numbers = lambda counts: ", ".join(f"{pair} {n:,}" for pair, n in counts.items() if n)
    lengths, too_long = ", ".join(str(b.length) for b in plan.buckets), numbers(plan.num_skipped)
    return (
        f"{numbers(plan.batches_per_epoch)} per epoch; buckets of {lengths} tokens; padding "
        f"efficiency {batches.efficiency:.4f}" + f"; too long: {too_long}" * bool(too_long)
    )
