"""LASER's mining procedure from its description, by loops in float64: the reference of the tests.

Written from systems.md section 6.3 and the paper, not from the library: cosines of all pairs,
sorted whole; candidates, margins and the greedy choice one by one.
"""

import math


def cosines(source, target):
    """Nested lists of the cosines of all pairs."""

    def unit(vector):
        norm = math.sqrt(sum(float(value) ** 2 for value in vector))
        return [float(value) / norm for value in vector]

    x, y = [unit(row) for row in source], [unit(row) for row in target]
    return [[sum(a * b for a, b in zip(u, v)) for v in y] for u in x]


def nearest(row, k):
    """Places of the k largest values, the first of equals first."""
    return sorted(range(len(row)), key=lambda place: (-row[place], place))[:k]


def margin_of(name, cosine, first, second):
    """The margin of a pair from the mean cosines of its two neighborhoods."""
    mean = (first + second) / 2
    return {"ratio": cosine / mean, "distance": cosine - mean, "absolute": cosine}[name]


def mine(source, target, k=4, margin="ratio", retrieval="max", threshold=0.0):
    """(score, source, target), best first, as `mine_bitexts --mode mine`."""
    cosine = cosines(source, target)
    transposed = [list(column) for column in zip(*cosine)]
    forward = [nearest(row, k) for row in cosine]
    backward = [nearest(row, k) for row in transposed]
    x_mean = [sum(row[j] for j in places) / len(places) for row, places in zip(cosine, forward)]
    y_mean = [
        sum(row[i] for i in places) / len(places) for row, places in zip(transposed, backward)
    ]

    def score(i, j):
        return margin_of(margin, cosine[i][j], x_mean[i], y_mean[j])

    forward_best = [max(places, key=lambda j, i=i: score(i, j)) for i, places in enumerate(forward)]
    backward_best = [
        max(places, key=lambda i, j=j: score(i, j)) for j, places in enumerate(backward)
    ]
    forward_pairs = [(score(i, j), i, j) for i, j in enumerate(forward_best)]
    backward_pairs = [(score(i, j), i, j) for j, i in enumerate(backward_best)]
    if retrieval == "fwd":
        return sorted(forward_pairs, key=lambda pair: -pair[0])
    if retrieval == "bwd":
        return sorted(backward_pairs, key=lambda pair: -pair[0])
    if retrieval == "intersect":
        both = [pair for pair in forward_pairs if backward_best[pair[2]] == pair[1]]
        return sorted(both, key=lambda pair: -pair[0])
    found, seen_source, seen_target = [], set(), set()
    for pair in sorted(forward_pairs + backward_pairs, key=lambda pair: -pair[0]):
        if pair[1] not in seen_source and pair[2] not in seen_target:
            seen_source.add(pair[1])
            seen_target.add(pair[2])
            if pair[0] > threshold:
                found.append(pair)
    return found
