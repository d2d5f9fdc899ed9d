"""Hard negatives in batches: which rows they are, what they contribute, and exact continuation."""

import os
import signal
from pathlib import Path

import jax
import numpy as np
import pytest

from tests.train import processes
from tests.train.synthetic import LANGUAGES, VOCAB_SIZE, pack_rows
from xling_jax.config import load_config
from xling_jax.corpora.shards import PairTokens, write_shard
from xling_jax.train import loop
from xling_jax.train.batches import read_batches
from xling_jax.train.build import VocabFacts, build
from xling_jax.train.hard_negatives import RowNeighbors, text_numbers, with_hard_negatives
from xling_jax.train.mesh import make_mesh
from xling_jax.train.mining import Miner, find_neighbors

FACTS = VocabFacts(VOCAB_SIZE, "vocab", {"bos": 0, "pad": 1, "eos": 2, "mask": 3})


def compose(rows, negatives, translations=((),) * 10, texts=None, fits=(True,) * 10, share=0.5):
    width = max(1, *map(len, negatives), *map(len, translations))
    padded = [[[*r, *[-1] * (width - len(r))] for r in rs] for rs in (negatives, translations)]
    neighbors = RowNeighbors(*(np.array(part, np.int32) for part in padded))
    numbers = np.array(texts or [(i, i) for i in range(10)], np.uint64)
    return with_hard_negatives(np.array(rows), share, neighbors, numbers, np.array(fits)).tolist()


def test_the_hardest_negatives_of_the_first_rows_take_the_place_of_the_last_rows():
    negatives = [[6, 7], [8, 9], [0], [0], *[[]] * 6]
    assert compose([0, 1, 4, 5, -1], negatives) == [0, 1, 6, 8, -1]
    assert compose([0, 1, 2, 3, 4, 5], negatives) == [0, 1, 2, 6, 8, 7], "row 0 is there already"
    assert compose([0, 1, 2, 3, 4, 5], negatives, share=0.2) == [0, 1, 2, 3, 4, 6]
    assert compose([0, 1, 4, 5, *[-1] * 4], negatives) == [0, 1, 6, 8, *[-1] * 4], "of the real"
    assert compose([0, 1, 4, 5], [[]] * 10) == [0, 1, 4, 5], "planned rows stay if there are none"


def test_translations_equal_texts_and_long_rows_are_kept_out():
    negatives = [[6], [8], *[[]] * 8]
    rows, plain = [0, 1, 4, 5], [0, 1, 6, 8]
    assert compose(rows, negatives) == plain
    # 8 may be a translation of 0, and be known as such from either side.
    assert compose(rows, negatives, [[8], *[[]] * 9]) == [0, 1, 6, 4]
    assert compose(rows, negatives, [*[[]] * 8, [0], []]) == [0, 1, 6, 4]
    # It may be one of another negative.
    assert compose(rows, negatives, [*[[]] * 6, [8], [], [], []]) == [0, 1, 6, 4]
    for side in (0, 1):
        texts = [[i, i] for i in range(10)]
        texts[8][side] = 6
        assert compose(rows, negatives, texts=texts) == [0, 1, 6, 4]
        texts[4][side] = 1  # a planned row is not taken back where it would do harm
        assert compose(rows, negatives, texts=texts) == [0, 1, 6, 5]
        texts[5][side] = 1
        assert compose(rows, negatives, texts=texts) == [0, 1, 6, -1]
    assert compose(rows, negatives, fits=[i != 6 for i in range(10)]) == [0, 1, 8, 4]


# A corpus in which a translation has the words of its source, in another order, so that a static
# encoder with any parameters finds it; some texts occur twice.
ROWS, COPIES = 160, {5: 50, 17: 71, 30: 90}


def write_bags(directory: Path) -> loop.Corpus:
    random = np.random.default_rng(2)
    sources = [random.integers(4, VOCAB_SIZE, random.integers(3, 14)) for _ in range(ROWS)]
    targets = [random.permutation(words) for words in sources]
    for row, (first, copy) in enumerate(COPIES.items()):
        target, longer = targets[first], np.append(sources[first], 4 + row)
        # Equal sources of different targets, or equal targets of different sources.
        sources[copy], targets[copy] = (sources[first], longer) if row % 2 else (longer, target)
    parts = [slice(0, 70), slice(70, ROWS)]
    for number, part in enumerate(parts):
        columns = {c: pack_rows(t[part]) for c, t in (("aa", sources), ("bb", targets))}
        write_shard(directory / "aa-bb" / f"{number:05d}", columns)
    return loop.Corpus(str(directory), "data", FACTS)


@pytest.fixture(scope="module")
def bags(tmp_path_factory):
    return write_bags(tmp_path_factory.mktemp("bags"))


def make_config(**settings):
    config = load_config("static:smoke")
    config.languages, config.data.pairs = LANGUAGES, ("aa-bb",)
    config.encoder.width, config.data.reader = 16, "numpy"
    config.data.update(bucket_lengths=(8, 24), batch_size=32, batch_multiple=8)
    config.data.update(hard_negatives=0.5, mine_every_steps=4, negatives_pool=1000)
    config.data.negatives_margin = 0.05
    config.train.update(total_steps=14, checkpoint_every_steps=100, evaluate_every_steps=100)
    config.train.log_every_steps = 1
    config.update_from_flattened_dict(settings)
    return config


def mine(corpus, config):
    """What a new encoder finds, and the vectors of all rows, [rows, 2, dim] float64."""
    batches = loop.open_batches(config, corpus)
    built = build(config, FACTS)
    params = built.init().params
    data = config.data
    settings = {"pool": data.negatives_pool, "margin": data.negatives_margin}
    miner = Miner(built.objective.setting, batches, make_mesh(), built.shapes.params, **settings)
    tokens = PairTokens(Path(corpus.directory, "aa-bb"))
    sides = [tokens.gather(language, np.arange(ROWS), 24, 1) for language in ("aa", "bb")]
    apply = built.objective.setting.model.encoder.apply
    vectors = [np.asarray(apply({"params": params["encoder"]}, s), np.float64) for s in sides]
    vectors = np.stack(vectors, axis=1)
    return batches, miner(params, 0), vectors / np.linalg.norm(vectors, axis=2, keepdims=True)


def test_texts_have_equal_numbers_if_they_are_equal(bags):
    tokens = PairTokens(Path(bags.directory, "aa-bb"))
    numbers = text_numbers(tokens)
    for side, language in enumerate(tokens.languages):
        texts = tokens.gather(language, np.arange(ROWS), 24, 1)
        expected = (texts[:, None] == texts).all(2)
        assert expected.sum() > ROWS
        np.testing.assert_array_equal(numbers[:, side, None] == numbers[:, side], expected)


def test_texts_of_the_same_words_in_another_order_have_other_numbers(tmp_path):
    man_bites_dog = [np.array(words) for words in ([5, 6, 7], [7, 6, 5], [5, 6, 7])]
    columns = {language: pack_rows(man_bites_dog) for language in ("aa", "bb")}
    write_shard(tmp_path / "aa-bb/00000", columns)
    numbers = text_numbers(PairTokens(tmp_path / "aa-bb"))
    assert (numbers[0] == numbers[2]).all() and (numbers[0] != numbers[1]).all()


@pytest.mark.parametrize("margin", [0.0, 0.2])
def test_mined_neighbors_are_those_of_an_exhaustive_search(bags, margin):
    config = make_config(**{"data.negatives_margin": margin})
    batches, found, vectors = mine(bags, config)
    texts = batches.texts[0]
    scores = vectors[:, 0] @ vectors[:, 1].T
    for row in range(ROWS):
        nearest = np.argsort(-scores[row], kind="stable")[:17]
        negatives, translations = [], []
        for other in nearest[nearest != row]:
            score = max(scores[row, other], scores[other, row])
            if abs(score - scores[row, row] + margin) < 1e-5:
                break  # rounding decides
            equal = (texts[row] == texts[other]).any() or score > scores[row, row] - margin
            (translations if equal else negatives).append(other)
        else:
            for kind, expected in (("negatives", negatives), ("translations", translations)):
                kept = getattr(found["aa-bb"], kind)[row]
                assert kept[kept >= 0].tolist() == expected[:8]
    known = found["aa-bb"]
    assert (known.negatives[:, 0] >= 0).mean() > 0.9
    for first, copy in COPIES.items():
        for one, other in ((first, copy), (copy, first)):
            assert other not in known.negatives[one] and other in known.translations[one]


def test_every_row_is_searched_in_some_group_whatever_its_size(bags):
    groups = make_config(**{"data.negatives_pool": 40})
    _, found, _ = mine(bags, groups)
    negatives = found["aa-bb"].negatives
    assert (negatives[:, 0] >= 0).mean() > 0.9
    assert not (negatives == np.arange(ROWS)[:, None]).any()
    _, whole, _ = mine(bags, make_config())
    assert (negatives[:, 0] != whole["aa-bb"].negatives[:, 0]).mean() > 0.2


def test_no_batch_has_two_pairs_that_share_a_text(bags):
    config = make_config(**{"data.bucket_lengths": (24,), "data.batch_size": 64})
    batches, found, _ = mine(bags, config)
    mined = batches.with_neighbors(found)
    shared_before = replaced = 0
    for index in range(30):
        planned, rows = batches.plan[index].rows, mined.entry(index).rows
        kept = (planned >= 0).sum() - (planned >= 0).sum() // 2
        np.testing.assert_array_equal(rows[:kept], planned[:kept])
        assert len(set(rows[rows >= 0])) == (rows >= 0).sum()
        replaced += (rows != planned).sum()
        new = set(rows[kept:]) - {-1}
        for first, copy in COPIES.items():
            shared_before += {first, copy} <= set(planned)
            assert not {first, copy} <= set(rows) or not {first, copy} & new
    assert shared_before > 10 and replaced > 300
    np.testing.assert_array_equal(batches.entry(3).rows, batches.plan[3].rows)


def test_readers_and_processes_agree_on_the_rows(bags):
    batches, found, _ = mine(bags, make_config())
    mined = batches.with_neighbors(found)
    whole = list(read_batches(mined, 0, 6, reader="numpy"))
    if pytest.importorskip("tensorflow"):
        for one, other in zip(whole, read_batches(mined, 0, 6, reader="tf.data"), strict=True):
            jax.tree.map(np.testing.assert_array_equal, one, other)
    parts = []
    for number in range(2):
        part = mined.with_neighbors(found)
        part._process = (number, 2)
        parts.append([part[index] for index in range(6)])
    for one, *halves in zip(whole, *parts, strict=True):
        for name, array in one.items():
            np.testing.assert_array_equal(np.concatenate([h[name] for h in halves]), array)


@pytest.mark.parametrize("ignore_equal", [False, True])
def test_the_loss_of_a_batch_with_hard_negatives_is_that_of_its_pairs(bags, ignore_equal):
    config = make_config(**{"data.bucket_lengths": (24,), "encoder.width": 8})
    config.objective.alignment.update(ignore_equal=ignore_equal, widths=(4, 8), scale=7.0)
    batches, found, vectors = mine(bags, config)
    built = build(config, FACTS)
    params = built.init().params
    values = []
    for batch_source in (batches, batches.with_neighbors(found)):
        rows = batch_source.entry(1).rows
        value, _ = built.objective(params, batch_source[1], jax.random.key(0), False)
        rows = rows[rows >= 0]
        texts = batches.texts[0][rows]
        equal = (texts[:, None] == texts).any(2) & ~np.eye(len(rows), dtype=bool)
        expected = 0.0
        for width in (4, 8):
            u, v = (vectors[rows, side, :width] for side in (0, 1))
            u, v = (a / np.linalg.norm(a, axis=1, keepdims=True) for a in (u, v))
            logits = np.where(equal & ignore_equal, -np.inf, 7.0 * u @ v.T)
            for one in (logits, logits.T):
                expected += (np.log(np.exp(one).sum(1)) - np.diagonal(one)).sum()
        np.testing.assert_allclose(value, expected, rtol=1e-5)
        values.append(float(value) / len(rows))
    assert values[1] > values[0] + 0.1, "negatives that are hard make the loss higher"


def params_of(result):
    return jax.tree.leaves(result.encoder_params)


@pytest.mark.slow
@pytest.mark.parametrize("stopped_after", [6, 8])
def test_a_stopped_run_goes_on_with_the_same_bits(bags, tmp_path, stopped_after):
    """After 6 updates the neighbors of step 4 are in use; after 8 others are due."""
    config = make_config()
    whole = loop.train(config, tmp_path / "whole", bags)
    calls = iter(range(1, 100))
    stop = lambda: next(calls) == stopped_after
    half = loop.train(config, tmp_path / "parts", bags, should_stop=stop)
    assert half.step == stopped_after
    assert (tmp_path / f"parts/checkpoints/{stopped_after:08d}/mined").is_dir()
    rest = loop.train(config, tmp_path / "parts", bags)
    for one, other in zip(params_of(rest), params_of(whole), strict=True):
        np.testing.assert_array_equal(one, other)
    without = make_config(**{"data.hard_negatives": 0.0, "data.mine_every_steps": 0})
    plain = loop.train(without, tmp_path / "plain", bags)
    assert any((a != b).any() for a, b in zip(params_of(plain), params_of(whole), strict=True))
    with pytest.raises(ValueError, match="mine_every_steps is 4 in the checkpoint, 5 now"):
        loop.train(make_config(**{"data.mine_every_steps": 5}), tmp_path / "parts", bags)


@pytest.mark.slow
def test_damaged_negatives_in_a_checkpoint_are_found_and_the_one_before_continues(
    bags, tmp_path, caplog
):
    config = make_config(**{"train.checkpoint_every_steps": 2})
    loop.train(config, tmp_path / "whole", bags)
    calls = iter(range(1, 100))
    loop.train(config, tmp_path / "w", bags, should_stop=lambda: next(calls) == 6)
    for path in (tmp_path / "w/checkpoints/00000006/mined").rglob("d/*"):
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 16
        path.write_bytes(content)
    loop.train(config, tmp_path / "w", bags)
    assert "checkpoint 6 in" in caplog.text and "trying the one before it" in caplog.text
    metrics = [processes.metrics_without_timing(tmp_path / name)[-1] for name in ("w", "whole")]
    assert metrics[0] == metrics[1]


SETTINGS = {
    "train.total_steps": 12,
    "train.checkpoint_every_steps": 2,
    "data.hard_negatives": 0.25,
    "data.mine_every_steps": 5,
    "data.negatives_pool": 60,
    "data.negatives_margin": 0.01,
}


def kill_at_step_eight(number: int, step: int) -> None:
    if step == 8:
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.exhaustive
def test_a_killed_run_several_devices_and_processes_give_the_same(corpus, tmp_path):
    one, killed, two, pair = (tmp_path / name for name in ("one", "killed", "two", "pair"))
    cache = tmp_path / "cache"
    start = lambda workdir, **more: processes.start(workdir, corpus, SETTINGS, cache=cache, **more)
    assert processes.finish(start(one)) == 0, processes.log_text(one)
    assert processes.log_text(one).count("hard negatives for") == 3
    assert processes.finish(start(killed, at_step=kill_at_step_eight)) == -signal.SIGKILL
    assert processes.finish(start(killed)) == 0, processes.log_text(killed)
    assert "resuming from checkpoint" in processes.log_text(killed)
    assert processes.metrics_without_timing(killed) == processes.metrics_without_timing(one)
    with np.load(killed / "final.npz") as a, np.load(one / "final.npz") as b:
        assert all(np.array_equal(a[name], b[name]) for name in b)
    assert processes.finish(start(two, num_devices=2)) == 0, processes.log_text(two)
    processes.check_same_training(two, one)
    both = processes.start_several(2, pair, corpus, SETTINGS, cache=cache, num_devices=1)
    assert [processes.finish(process, 300) for process in both] == [0, 0], processes.log_texts(pair)
    processes.check_same_training(pair, one)


def test_find_neighbors_takes_fewer_pairs_than_it_remembers():
    vectors = np.eye(3, dtype=np.float32)[:, None].repeat(2, 1)
    vectors[2] = vectors[1]
    texts = np.array([[0, 0], [1, 1], [2, 1]], np.uint64)
    found = find_neighbors(vectors, texts, 0.0)
    assert found.negatives.shape == found.translations.shape == (3, 8)
    assert sorted(found.negatives[0][:2].tolist()) == [1, 2] and found.negatives[1][0] == 0
    assert found.translations[:, 0].tolist() == [-1, 2, 1]
    assert (found.negatives[:, 2:] == -1).all() and (found.translations[:, 1:] == -1).all()


@pytest.mark.parametrize(
    "settings, reason",
    [
        ({"mine_every_steps": 0}, "needs exactly one of data.negatives_file"),
        ({"negatives_file": "file.tsv"}, "needs exactly one of data.negatives_file"),
        ({"hard_negatives": 0.0}, "data.mine_every_steps=4 needs data.hard_negatives"),
        (
            {"hard_negatives": 0.0, "mine_every_steps": 0, "negatives_file": "file.tsv"},
            "data.negatives_file='file.tsv' needs data.hard_negatives",
        ),
        ({"hard_negatives": 1.0}, "data.hard_negatives=1.0 must be at least 0 and below 1"),
        ({"negatives_pool": 1}, "data.negatives_pool=1 must be at least 2"),
        ({"negatives_margin": -0.1}, "data.negatives_margin=-0.1 must be at least 0"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, reason):
    config = make_config()
    config.data.update(settings)
    with pytest.raises(ValueError, match=reason):
        build(config, FACTS)


def test_an_objective_without_contrast_is_refused():
    config = load_config("distill:smoke")
    config.data.update(hard_negatives=0.5, mine_every_steps=4)
    with pytest.raises(ValueError, match="needs a term that contrasts .* distance, alignment"):
        build(config)
