"""Vectors of a teacher: those of the rows of the token shards, computed once."""

import numpy as np
import pytest

from tests.corpora.small_corpus import WORDS, prepare, settings, tree, vocab_path, write_corpus
from xling_jax.corpora.row_vectors import RowVectors
from xling_jax.corpora.shards import PairTokens
from xling_jax.corpora.stages import load_prepared
from xling_jax.encode.teacher import principal_axes
from xling_jax.text.vocab import Vocab
from xling_jax.train.batches import DataOptions, TranslationBatches

pytestmark = pytest.mark.usefixtures("small_chunks")

TOKENS = {word.lower(): i for i, words in enumerate(zip(*WORDS.values())) for word in words}
LANGUAGES = {"de-en": ["de", "en"], "en-fr": ["en"]}


class WordCounts:
    """A teacher: how often each of nine meanings occurs, rotated into `dim` dimensions."""

    def __init__(self, dim=12, fingerprint="counts", fail_after=10**9):
        self.dim, self.fingerprint, self.texts, self._fail_after = dim, fingerprint, 0, fail_after
        self._basis = np.linalg.qr(np.random.default_rng(0).normal(size=(dim, 9)))[0].T

    def encode_stream(self, texts):
        texts = list(texts)
        for start in range(0, len(texts), 7):
            self.texts += len(texts[start : start + 7])
            if self.texts > self._fail_after:
                raise KeyboardInterrupt
            rows = [np.bincount([TOKENS[w] for w in t.lower().split()], minlength=9) for t in texts]
            counts = np.array(rows[start : start + 7]) @ self._basis
            yield (counts / np.linalg.norm(counts, axis=1, keepdims=True)).astype(np.float32)

    def principal_axes(self, texts):
        return principal_axes(self.encode_stream(texts))


def run(workdir, spec, teacher, width=16, **changes):
    taught = {"model": "counts", "texts": "", "width": width, "languages": LANGUAGES}
    given = {"teacher": taught, "open_teacher": lambda name, texts: teacher}
    return prepare(workdir=workdir, **settings(spec, **given, **changes))


def check_rows(directory, vocab, width=16, cosines_only=False):
    """Each vector is that of the text in the token shards."""
    teacher = WordCounts()
    for pair, sides in LANGUAGES.items():
        tokens = PairTokens(directory / pair)
        for code in sides:
            rows = np.arange(-1, len(tokens))
            found = RowVectors(directory, pair, code, len(tokens), width).gather(rows)
            assert not found[0].any()
            texts = [
                vocab.decode(
                    tokens.gather(code, rows[r + 1 : r + 2], tokens.lengths[code][r], 0)[0]
                )
                for r in range(len(tokens))
            ]
            expected = np.concatenate(list(teacher.encode_stream(texts)))
            if cosines_only:
                found, expected = found[1:] @ found[1:].T, expected @ expected.T
            else:
                found = found[1:, : teacher.dim]
            np.testing.assert_allclose(found, expected, atol=2e-3)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("text") / "corpus.tsv", 150)


def test_vectors_belong_to_the_rows_whatever_is_dropped_and_held_out(corpus, tmp_path):
    changes = {"validation_pairs": 11, "cleaning": {"max_words": 9}}
    prepared = run(tmp_path, corpus, WordCounts(), **changes)
    dropped = prepared.counts["corpora"][corpus]["de-en"]
    assert dropped["too_long"] and dropped["validation"] == 11
    vocab = Vocab(vocab_path(prepared))
    check_rows(prepared.directory, vocab)
    check_rows(prepared.directory / "validation", vocab)
    with pytest.raises(ValueError, match="en-fr/fr.npy: missing or damaged vectors of the teacher"):
        RowVectors(prepared.directory, "en-fr", "fr", 1, 16)


def test_a_flipped_bit_in_the_vectors_is_found(corpus, tmp_path):
    prepared = run(tmp_path, corpus, WordCounts())
    path = prepared.directory / "teacher/de-en/de.npy"
    rows, content = len(np.load(path)), path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(ValueError, match="de.npy: missing or damaged vectors of the teacher: its"):
        RowVectors(prepared.directory, "de-en", "de", rows, 16)


def test_a_wider_teacher_is_cut_to_the_axes_that_its_vectors_have(corpus, tmp_path):
    prepared = run(tmp_path, corpus, WordCounts(), width=9)
    check_rows(prepared.directory, Vocab(vocab_path(prepared)), width=9, cosines_only=True)
    vectors = np.load(prepared.directory / "teacher/de-en/de.npy").astype(np.float32)
    assert vectors.shape[1] == 9
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-3)
    energy = (vectors**2).mean(0)
    assert energy[0] > 0.5 and (np.diff(energy) < 0.02).all()


def test_vectors_are_computed_once_and_go_on_after_an_interruption(corpus, tmp_path):
    plain = prepare(workdir=tmp_path / "w", **settings(corpus))
    rows = {pair: count["rows"] for pair, count in plain.counts["pairs"].items()}
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "w", corpus, WordCounts(fail_after=2 * rows["de-en"] + 5))
    teacher = WordCounts()
    prepared = run(tmp_path / "w", corpus, teacher)
    assert teacher.texts == rows["en-fr"], "the finished pair is not encoded again"
    assert prepared.fingerprint != plain.fingerprint
    run(tmp_path / "x", corpus, WordCounts())
    assert tree(tmp_path / "w" / "data" / "teacher") == tree(tmp_path / "x" / "data" / "teacher")

    again = WordCounts()
    assert run(tmp_path / "w", corpus, again).fingerprint == prepared.fingerprint
    assert again.texts == 0
    other = WordCounts(fingerprint="other")
    assert run(tmp_path / "w", corpus, other).fingerprint != prepared.fingerprint
    assert other.texts == 2 * rows["de-en"] + rows["en-fr"]
    without = prepare(workdir=tmp_path / "w", **settings(corpus))
    assert without == plain == load_prepared(tmp_path / "w")
    assert not (tmp_path / "w" / "data" / "teacher").exists()


def test_text_without_translations_is_a_pair_of_a_language_with_itself(tmp_path):
    lines = tmp_path / "corpus.tsv"
    write_corpus(lines, 80, ("de", "en"))
    alone = [" ".join(WORDS["de"][i : i + 4]) for i in range(6)]
    with open(lines, "a", encoding="utf-8") as file:
        file.writelines(f"{text}\t\n" for text in alone)
        file.write("\tonly English here\n")
    taught = {"model": "counts", "texts": "", "width": 16}
    taught["languages"] = {"de-en": ["en"], "de-de": ["de"]}
    given = {"teacher": taught, "open_teacher": lambda name, texts: WordCounts()}
    changes = {"pairs": ("en-de", "de-de"), "languages": ("de", "en"), "vocab": {"size": 60}}
    prepared = prepare(workdir=tmp_path / "w", **settings(f"tsv:{lines}", **changes, **given))
    assert prepared.counts["pairs"]["de-de"]["rows"] == len(alone)
    assert prepared.counts["pairs"]["de-en"]["rows"] == 80
    data = DataOptions(("en-de", "de-de"), batch_size=8, batch_multiple=8, both_directions=True)
    affixes = {"prefix": (), "suffix": (), "pad_id": 0}
    languages = ("de", "en")
    batches = TranslationBatches(
        prepared.directory,
        data,
        languages=languages,
        seed=0,
        **affixes,
        teachers=("source_teacher",),
        width=16,
    )
    number = [str(d) for d in batches.directions].index("de->de")
    (entry,) = batches.plan.one_pass(number)
    batch = batches.read(entry)
    np.testing.assert_array_equal(batch["source_tokens"], batch["target_tokens"])
    vocab, real = Vocab(vocab_path(prepared)), entry.rows >= 0
    texts = [vocab.decode(row[row != 0]) for row in batch["source_tokens"][real]]
    assert sorted(texts) == sorted(text.lower() for text in alone)
    expected = np.concatenate(list(WordCounts().encode_stream(texts)))
    np.testing.assert_allclose(batch["source_teacher"][real, :12], expected, atol=2e-3)
