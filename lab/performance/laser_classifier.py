"""Time to train LASER's MLDoc classifier, against a loop in PyTorch.

1,000 training and 1,000 development texts of 1,024 dimensions, 500 epochs of batches of 12, as in
MLDoc. PyTorch runs the published loop for some epochs, extrapolated to all. Run both on one core:

    taskset -c 0 python lab/performance/laser_classifier.py --seeds 5
"""

import argparse
import dataclasses
import time

import numpy as np
import torch

from xling_jax.eval import mlp

NUM_LABELS = 4


def make_data(num: int, dim: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Texts of four overlapping topics."""
    centers = np.random.default_rng(0).standard_normal((NUM_LABELS, dim))
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, NUM_LABELS, num)
    features = 0.01 * centers[labels] + 0.1 * rng.standard_normal((num, dim))
    return features.astype(np.float32), labels


def train_ours(train, dev, num_epochs: int, num_seeds: int) -> np.ndarray:
    """Returns the development accuracy of each seed."""
    schedule = dataclasses.replace(mlp.LASER, num_epochs=num_epochs)
    accuracy = lambda network: np.mean(network(dev[0]).argmax(axis=1) == dev[1])
    runs = (mlp.train(schedule, *train, NUM_LABELS, [accuracy], seed=n) for n in range(num_seeds))
    return np.array([kept.score for (kept,) in runs])


def train_in_torch(train, dev, num_epochs: int) -> float:
    """Returns the best development accuracy of one seed."""
    torch.manual_seed(0)
    layers: list[torch.nn.Module] = [torch.nn.Dropout(0.2)]
    sizes = (train[0].shape[1], 10, 8)
    for size_in, size_out in zip(sizes, sizes[1:]):
        layers += [torch.nn.Linear(size_in, size_out), torch.nn.Tanh(), torch.nn.Dropout(0.2)]
    network = torch.nn.Sequential(*layers, torch.nn.Linear(sizes[-1], NUM_LABELS))
    adam = torch.optim.Adam(network.parameters(), lr=1e-3)
    data = torch.utils.data.TensorDataset(*map(torch.from_numpy, train))
    loader = torch.utils.data.DataLoader(data, batch_size=12, shuffle=True)
    best = 0.0
    for _ in range(num_epochs):
        network.train()
        for features, labels in loader:
            adam.zero_grad()
            torch.nn.functional.cross_entropy(network(features), labels).backward()
            adam.step()
        network.eval()
        with torch.no_grad():
            answers = network(torch.from_numpy(dev[0])).argmax(1).numpy()
        best = max(best, float(np.mean(answers == dev[1])))
    return best


def main() -> None:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--texts", type=int, default=1000)
    parser.add_argument("--dim", type=int, default=1024)
    parser.add_argument("--epochs", type=int, default=500)
    parser.add_argument("--torch-epochs", type=int, default=20)
    parser.add_argument("--seeds", type=int, default=5)
    args = parser.parse_args()
    torch.set_num_threads(1)
    train, dev = make_data(args.texts, args.dim, 1), make_data(args.texts, args.dim, 2)

    for name in ("ours, with compilation", "ours, compiled"):
        started = time.perf_counter()
        accuracies = train_ours(train, dev, args.epochs, args.seeds)
        seconds = time.perf_counter() - started
        print(
            f"{name}: {seconds:.1f} s for {args.seeds} seeds, {seconds / args.seeds:.1f} s each; "
            f"dev {100 * accuracies.mean():.1f}%"
        )
    train_in_torch(train, dev, 1)
    started = time.perf_counter()
    best = train_in_torch(train, dev, args.torch_epochs)
    seconds = (time.perf_counter() - started) * args.epochs / args.torch_epochs
    print(f"PyTorch: {seconds:.1f} s each (from {args.torch_epochs} epochs); dev {100 * best:.1f}%")


if __name__ == "__main__":
    main()
