"""Classifiers: LASER's schedule against PyTorch, selection rules, seeds, oracles."""

import dataclasses

import numpy as np
import pytest

from xling_jax.eval import classifiers, mlp

torch = pytest.importorskip("torch")

RNG = np.random.default_rng(0)
NUM, DIM, LABELS = 31, 6, 3
CENTERS = RNG.standard_normal((LABELS, DIM)).astype(np.float32)


def examples(num, seed, noise=0.6):
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.arange(num) % LABELS)
    features = CENTERS[labels] + noise * rng.standard_normal((num, DIM))
    return features.astype(np.float32), labels


@pytest.fixture(autouse=True)
def one_thread():
    """The networks are too small for threads, which wait for each other on busy cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def torch_network(sizes, layers, activation):
    modules = []
    for (size_in, size_out), (kernel, bias) in zip(zip(sizes, sizes[1:]), layers):
        linear = torch.nn.Linear(size_in, size_out)
        linear.weight.data = torch.from_numpy(kernel.T.copy())
        linear.bias.data = torch.from_numpy(bias.copy())
        modules += [linear, activation()]
    return torch.nn.Sequential(*modules[:-1])


def train_in_torch(schedule, layers, order, data, dev, l2=0.0):
    """The published loops, with given weights and order: every epoch's weights and dev counts."""
    (features, labels), (dev_features, dev_labels) = data, dev
    activation = {"tanh": torch.nn.Tanh, "sigmoid": torch.nn.Sigmoid}[schedule.activation]
    network = torch_network((DIM, *schedule.hidden, LABELS), layers, activation)
    adam = torch.optim.Adam(network.parameters(), lr=schedule.learning_rate, weight_decay=l2)
    x, y = torch.from_numpy(features), torch.from_numpy(labels)
    history = []
    for number, rows in enumerate(order, start=1):
        for start in range(0, len(rows), schedule.batch_size):
            batch = torch.from_numpy(rows[start : start + schedule.batch_size])
            adam.zero_grad()
            torch.nn.functional.cross_entropy(network(x[batch]), y[batch]).backward()
            adam.step()
        if number % schedule.passes_per_epoch == 0:
            answers = network(torch.from_numpy(dev_features)).argmax(1).numpy()
            linears = [m for m in network if isinstance(m, torch.nn.Linear)]
            weights = [
                (m.weight.detach().numpy().T.copy(), m.bias.detach().numpy().copy())
                for m in linears
            ]
            history.append((int(np.sum(answers == dev_labels)), weights))
    return history


def drawn(schedule, seed):
    """First weights, and the order of rows in each pass."""
    rng = np.random.default_rng([seed, 1])
    num_passes = schedule.num_epochs * schedule.passes_per_epoch
    order = [rng.permutation(NUM) for _ in range(num_passes)]
    return mlp.initial_layers(schedule, DIM, LABELS, seed), order


def train(schedule, data, *sets, seed=7, **options):
    """What is kept for each set of dev rows, by the number of right answers."""
    looks = [lambda network, x=x, y=y: np.sum(network(x).argmax(axis=1) == y) for x, y in sets]
    return mlp.train(schedule, *data, LABELS, looks, seed=seed, **options)


@pytest.mark.parametrize("hidden", [(10, 8), ()])
def test_lasers_schedule_equals_pytorch(hidden):
    schedule = dataclasses.replace(
        mlp.LASER, hidden=hidden, input_dropout=0.0, hidden_dropout=0.0, num_epochs=40
    )
    data, dev = examples(NUM, 1), examples(40, 2)
    layers, order = drawn(schedule, 7)  # 31 rows: the last batch of each pass has 7 of 12.
    (kept,) = train(schedule, data, dev)
    history = train_in_torch(schedule, layers, order, data, dev)
    counts = [count for count, _ in history]
    last_best = max(i for i, count in enumerate(counts) if count == max(counts))
    assert (kept.score, kept.epoch) == (max(counts), last_best + 1)
    for ours, theirs in zip(kept.network.layers, history[last_best][1]):
        for one, other in zip(ours, theirs):
            np.testing.assert_allclose(one, other, atol=1e-4)


def test_sentevals_schedule_equals_pytorch_and_stops_early():
    assert mlp.SENTEVAL.patience == 5
    schedule = dataclasses.replace(
        mlp.SENTEVAL, hidden=(5,), batch_size=8, learning_rate=0.002, patience=4
    )
    data, dev = examples(NUM, 1, noise=1.0), examples(40, 2, noise=1.0)
    layers, order = drawn(schedule, 0)
    history = train_in_torch(schedule, layers, order, data, dev, l2=1e-2)
    best, failures, last = -1, 0, None
    for number, (count, weights) in enumerate(history):
        if count > best:
            best, last = count, (number, weights)
        elif failures >= schedule.patience:
            break
        else:
            failures += 1
    assert history[number + 1][0] > best, "one epoch more must change the answer"
    (kept,) = train(schedule, data, dev, l2=1e-2, seed=0)
    assert (kept.score, kept.epoch) == (best, last[0] + 1)
    np.testing.assert_allclose(kept.network.layers[0][0], last[1][0][0], atol=1e-4)


def short(**changes):
    return dataclasses.replace(mlp.LASER, num_epochs=6, **changes)


def test_dropout_weight_decay_seed_and_rows_change_what_is_learned():
    data, dev = examples(NUM, 1), examples(40, 2)
    kernels = [
        train(schedule, data, dev, **options)[0].network.layers[0][0]
        for schedule, options in (
            (short(), {}),
            (short(), {"l2": 0.1}),
            (short(), {"seed": 8}),
            (short(), {"rows": np.arange(12)}),
            (short(input_dropout=0.0), {}),
            (short(hidden_dropout=0.0), {}),
        )
    ]
    for number, kernel in enumerate(kernels[1:]):
        assert not np.allclose(kernels[0], kernel), number


def test_dropout_drops_its_share_and_keeps_the_mean():
    import jax

    # With an identity layer and no hidden layers the logits are the dropped input itself.
    schedule = mlp.Schedule(hidden=(), input_dropout=0.2)
    layers = [(np.eye(50, dtype=np.float32), np.zeros(50, np.float32))]
    values = np.asarray(
        mlp._apply(schedule, layers, np.ones((4000, 50), np.float32), jax.random.key(0))
    )
    assert set(np.unique(values)) == {0.0, np.float32(1.25)}
    assert np.mean(values == 0) == pytest.approx(0.2, abs=0.003)


def test_every_dev_set_keeps_its_own_epoch():
    data, (x, y) = examples(NUM, 1), examples(40, 2)
    sets = [(x[:20], y[:20]), (x[20:], y[20:])]
    for kept, one in zip(train(short(), data, *sets), sets):
        (alone,) = train(short(), data, one)
        assert (kept.epoch, kept.score) == (alone.epoch, alone.score)
        np.testing.assert_array_equal(kept.network(x), alone.network(x))


def named(num, seed, noise=0.6):
    features, labels = examples(num, seed, noise)
    return classifiers.Examples(features, [f"label {label}" for label in labels])


@pytest.fixture
def short_training(monkeypatch):
    for name in ("LASER", "LINEAR"):
        fast = dataclasses.replace(getattr(mlp, name), learning_rate=0.01, num_epochs=150)
        monkeypatch.setattr(mlp, name, fast)


@pytest.mark.parametrize(
    ("name", "with_dev"),
    [("logreg", True), ("svm", False), ("mlp", True), ("mlp", False), ("linear", False)],
)
def test_every_classifier_learns_with_and_without_dev(name, with_dev, short_training):
    dev = named(30, 2, 0.3) if with_dev else None
    selected, _ = classifiers.train_classifier(name, named(90, 1, 0.3), dev, {}, seeds=(0, 1))
    assert len(selected) == 2
    for one in selected:
        assert one.accuracy(named(60, 3, 0.3)) > 0.9


@pytest.mark.parametrize("name", ["logreg", "svm"])
def test_a_classifier_equals_scikit_learns(name):
    from sklearn.linear_model import LogisticRegression
    from sklearn.svm import LinearSVC

    train_examples, test = named(60, 1), named(50, 2)
    (selected,), _ = classifiers.train_classifier(name, train_examples, None, {}, c_values=[0.1])
    features = train_examples.features
    mean = features.mean(axis=0)
    scale = np.sqrt(np.mean((features - mean) ** 2))
    kind = {"logreg": LogisticRegression, "svm": LinearSVC}[name]
    other = kind(C=0.1).fit((features - mean) / scale, train_examples.labels)
    np.testing.assert_array_equal(
        selected.predict(test.features), other.predict((test.features - mean) / scale)
    )


def test_dev_selects_and_the_oracle_selects_on_its_own():
    # A label rules the training text: the smallest C answers it always, which is right for a test
    # language that has nothing else, and wrong for dev text that has all labels.
    full = named(90, 1)
    rows = [i for i, label in enumerate(full.labels) if label == "label 0" or i < 20]
    train_examples = classifiers.Examples(full.features[rows], [full.labels[i] for i in rows])
    dev, other = named(40, 2), classifiers.Examples(named(9, 3, 3.0).features, ["label 0"] * 9)
    accuracies = {}
    for c in classifiers.C_VALUES["logreg"]:
        (one,), _ = classifiers.train_classifier("logreg", train_examples, None, {}, c_values=[c])
        accuracies[c] = (one.accuracy(dev), one.accuracy(other))
    best = [max(accuracies, key=lambda c: (accuracies[c][i], -c)) for i in (0, 1)]
    assert best[0] != best[1]
    (selected,), (oracles,) = classifiers.train_classifier(
        "logreg", train_examples, dev, {"de": other}
    )
    assert [selected.chosen, oracles["de"].chosen] == best


def test_labels_that_training_does_not_know_are_wrong_answers(short_training):
    dev = classifiers.Examples(named(9, 2).features, ["never seen"] * 9)
    (selected,), _ = classifiers.train_classifier("mlp", named(60, 1), dev, {})
    assert selected.accuracy(dev) == 0
    assert selected.chosen == 150  # All epochs have none right, and the last of equals is kept.
