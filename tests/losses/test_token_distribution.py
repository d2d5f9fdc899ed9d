import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.losses.helpers import shapes_in, softmax_cross_entropy
from xling_jax.losses.token_distribution import (
    TASKS,
    Labels,
    Masked,
    label_distributions,
    mask_one_token,
    token_distribution_kl,
)

PAD, MASK, COMMA, STOP = 0, 2, 3, 4
MASKABLE = np.arange(12) > STOP
BATCH, WIDTH, ROWS, VOCAB, ENTRIES = 8, 6, 16, 12, 5  # four rows of the table are padding


def rows(*sentences, length=6):
    return np.array([[*s, *[PAD] * (length - len(s))] for s in sentences], np.int32)


# Duplicates, sentences that share tokens, equal ones, a single token, punctuation, padding.
SOURCE = rows([5, 6, 5, 7, 3], [8], [9, 9, 4], [5, 6, 7], [3, 4], [3], [], [6, 7], [])
TARGET = rows([8, 5, 9, 9], [8], [10, 3], [5, 6, 7], [11, 7, 4], [4, 4], [], [], [6])
PAIRS = {"source_tokens": SOURCE, "target_tokens": TARGET, "masked": None, "pad_id": PAD}
PUNCTUATION, PADDING, EMPTY = 5, 6, [6, 7, 8]  # rows


@jax.jit
def mask_pairs(source, target, key=None):
    key = jax.random.key(0) if key is None else key
    return mask_one_token(key, source, target, MASKABLE, mask_id=MASK, pad_id=PAD)


@functools.partial(jax.jit, static_argnames="length")
def mask_many(keys, length=6):
    extra = ((0, 0), (0, length - 6))
    pairs = [jnp.pad(tokens, extra, constant_values=PAD) for tokens in (SOURCE, TARGET)]
    return jax.vmap(lambda key: mask_pairs(*pairs, key))(keys)


@pytest.fixture(scope="module")
def draws():
    return jax.device_get(mask_many(jax.random.split(jax.random.key(0), 600)))


def test_one_maskable_token_of_one_side_is_hidden(draws):
    for number, row in itertools.product(range(50), range(9)):
        read = draws.source_tokens[number, row], draws.target_tokens[number, row]
        originals = SOURCE[row], TARGET[row]
        changed = [np.flatnonzero(r != original) for r, original in zip(read, originals)]
        if row in (PUNCTUATION, PADDING):
            assert not changed[0].size and not changed[1].size
            assert draws.token[number, row] == PAD
            continue
        side = draws.side[number, row]
        (position,) = changed[side]
        assert not changed[1 - side].size
        assert read[side][position] == MASK
        token = originals[side][position]
        assert token == draws.token[number, row]
        assert MASKABLE[token]


def test_sides_and_positions_are_drawn_alike(draws):
    assert abs(draws.side[:, 0].mean() - 0.5) < 0.07
    for tokens, original, side in (
        (draws.source_tokens, SOURCE, 0),
        (draws.target_tokens, TARGET, 1),
    ):
        drawn = draws.side[:, 0] == side
        share = (tokens[drawn, 0] == MASK).mean(0)
        expected = MASKABLE[original[0]] / MASKABLE[original[0]].sum()
        np.testing.assert_allclose(share, expected, atol=0.09)


def test_a_side_without_maskable_tokens_leaves_it_to_the_other(draws):
    assert (draws.side[:, 4] == 1).all()  # its source is punctuation
    assert (draws.side[:, 7] == 0).all()  # its target is empty
    assert set(draws.token[:, 4]) == {7, 11}
    assert (draws.token[:, 1] == 8).all()  # the only token of either side


def test_more_padding_does_not_change_what_is_hidden(draws):
    longer = mask_many(jax.random.split(jax.random.key(0), 600), length=9)
    np.testing.assert_array_equal(longer.source_tokens[..., :6], draws.source_tokens)
    np.testing.assert_array_equal(longer.target_tokens[..., :6], draws.target_tokens)
    assert (np.asarray(longer.source_tokens)[..., 6:] == PAD).all()


OPTIONS = [*itertools.product([*TASKS, "mlm+xtr"], ("once", "count"))]


@pytest.fixture(scope="module")
def labeled(draws):
    """A draw, and labels of it under all options, from one program."""
    masked = Masked(*(array[1] for array in draws))
    pairs = PAIRS | {"masked": masked}

    def call(task, duplicates):
        tasks = dict.fromkeys(task.split("+"), 1.0)
        return label_distributions(tasks, **pairs, duplicates=duplicates)

    return masked, jax.device_get(jax.jit(lambda: {o: call(*o) for o in OPTIONS})())


def sentence_label(sentence, duplicates):
    kinds = set(sentence)
    if duplicates == "count":
        return {w: sentence.count(w) / len(sentence) for w in kinds}
    return {w: 1 / len(sentence) for w in kinds}


def pair_labels(pair, side, token, task, duplicates):
    """Of one pair: for each side the distributions whose divergences are added, as dicts."""
    words = [[int(w) for w in sentence if w != PAD] for sentence in pair]
    if not all(words):
        return [{}], [{}]
    result = []
    for this in (0, 1):
        other = sentence_label(words[1 - this], duplicates)
        hidden = {int(token): 1.0} if token != PAD and side == this else {}
        if task == "ugt" and hidden:
            label = {int(token): 0.5}
            for w, q in other.items():
                label[w] = q / 2
            result.append([label])
        elif task == "smlm":
            result.append([{int(token): 1.0} if token != PAD else {}])
        else:
            result.append({"mlm": [hidden], "mlm+xtr": [hidden, other]}.get(task, [other]))
    return result


def dense(labels, row, vocab=12):
    q = np.zeros(vocab)
    np.add.at(q, labels.ids[row], labels.weights[row])
    return q


@pytest.mark.parametrize("options", OPTIONS, ids="-".join)
def test_labels_equal_a_loop_over_words(labeled, options):
    masked, results = labeled
    for row, pair in enumerate(zip(SOURCE, TARGET)):
        expected = pair_labels(pair, masked.side[row], masked.token[row], *options)
        for labels, distributions in zip(results[options], expected):
            q = np.zeros(12)
            for distribution in distributions:
                np.add.at(q, list(distribution), list(distribution.values()))
            np.testing.assert_allclose(dense(labels, row), q, atol=1e-6)
            # No id has its weight in pieces.
            assert (labels.weights[row] > 0).sum() == sum(map(len, distributions))


def test_reconstruction_of_the_other_side_needs_nothing_hidden():
    source, target = label_distributions({"xtr": 1.0}, **PAIRS)
    np.testing.assert_array_equal(source.ids, TARGET)
    np.testing.assert_allclose(source.weights[0], [0.25, 0.25, 0.25, 0, 0, 0])
    np.testing.assert_allclose(target.weights[0], [0.2, 0.2, 0, 0.2, 0.2, 0])
    with pytest.raises(ValueError, match="masked=None: all tasks but xtr"):
        label_distributions({"ugt": 1.0}, **PAIRS)


@pytest.mark.parametrize(
    "name, value",
    [("task", "tlm"), ("duplicates", "twice")],
)
def test_unknown_options_are_refused_with_the_known_ones(name, value):
    with pytest.raises(ValueError, match=f"{name}='{value}' must be one of .*, "):
        tasks, given = ({value: 1.0}, {}) if name == "task" else ({"xtr": 1.0}, {name: value})
        label_distributions(tasks, **given, **PAIRS)


def reference(hidden, table, ids, label_weights, bias, vocab_size=VOCAB):
    """KL, cross-entropy and gradients of KL by hidden, table and bias, densely in float64."""
    q = np.zeros((len(ids), vocab_size))
    for row in range(len(ids)):
        np.add.at(q[row], ids[row], label_weights[row].astype(np.float64))
    weights = np.ones(len(ids))
    log_p, gradients = softmax_cross_entropy(hidden, table, bias, q, weights, vocab_size)
    log_q = np.log(np.where(q > 0, q, 1))
    divergence, cross_entropy = (q * (log_q - log_p)).sum(1), -(q * log_p).sum(1)
    return divergence.sum(), cross_entropy.sum(), *gradients


def draw_arrays(batch=BATCH):
    """hidden, table, label ids and weights, bias; row 1 has no label."""
    random = np.random.default_rng(0)
    ids = np.stack([random.permutation(VOCAB)[:ENTRIES] for _ in range(batch)])
    weights = np.where(random.random((batch, ENTRIES)) < 0.7, 1 / ENTRIES, 0)
    weights[1] = 0
    return (
        random.normal(size=(batch, WIDTH)).astype(np.float32),
        random.normal(size=(ROWS, WIDTH)).astype(np.float32),
        ids.astype(np.int32),
        weights.astype(np.float32),
        random.normal(size=ROWS).astype(np.float32),
    )


@pytest.fixture(scope="module")
def arrays():
    return draw_arrays()


def loss(hidden, table, ids, label_weights, bias, **options):
    arrays = (hidden, table, Labels(ids, label_weights))
    return token_distribution_kl(*arrays, output_bias=bias, **{"vocab_size": VOCAB} | options)


@functools.cache
def with_gradients(**options):
    function = lambda *arrays: loss(*arrays, **options)
    return jax.jit(jax.value_and_grad(function, argnums=(0, 1, 4), has_aux=True))


@pytest.mark.parametrize("chunks", [1, 2, 2.5, 8])
def test_value_and_gradients_equal_the_formula(arrays, chunks):
    options = {"max_logits": int(BATCH * ROWS / chunks)} if chunks > 1 else {}
    (value, cross_entropy), gradients = with_gradients(**options)(*arrays)
    expected = reference(*arrays)
    np.testing.assert_allclose(value, expected[0], rtol=1e-6)
    np.testing.assert_allclose(cross_entropy, expected[1], rtol=1e-6)
    for gradient, right in zip(gradients, expected[2:]):
        np.testing.assert_allclose(gradient, right, atol=2e-6)


def test_bfloat16_stays_close(arrays):
    hidden, *others = arrays
    (value, _), gradients = with_gradients()(jnp.asarray(hidden, jnp.bfloat16), *others)
    expected = reference(*arrays)
    assert value.dtype == gradients[1].dtype == gradients[2].dtype == jnp.float32
    assert gradients[0].dtype == jnp.bfloat16
    np.testing.assert_allclose(value, expected[0], rtol=0.01)
    for gradient, right in zip(gradients, expected[2:]):
        np.testing.assert_allclose(np.asarray(gradient, np.float32), right, atol=0.05)


def test_no_array_over_the_vocabulary_exceeds_a_chunk(arrays):
    program = jax.make_jaxpr(with_gradients(max_logits=BATCH * ROWS // 4))(*arrays).jaxpr
    shapes = {shape for shape in shapes_in(program) if shape and shape[-1] == ROWS}
    assert shapes - {(1, ROWS)} == {(ROWS,), (BATCH // 4, ROWS), (WIDTH, ROWS)}


@pytest.mark.parametrize("vocab_size", [0, ROWS + 1])
def test_a_vocabulary_larger_than_its_table_is_refused(arrays, vocab_size):
    with pytest.raises(ValueError, match=f"vocab_size={vocab_size} must be between 1 and the 16"):
        loss(*arrays, vocab_size=vocab_size)
