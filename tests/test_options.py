import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

import xling_jax
from xling_jax import options
from xling_jax.align import knn, mining
from xling_jax.align.matching import align_documents
from xling_jax.documents.lawdr import Lawdr


@dataclasses.dataclass(frozen=True)
class Toy:
    size: int
    names: tuple = dataclasses.field(default_factory=lambda: ("a",))
    margin: float = options.option(0.5, "how far", choices=(0.5, 1.0))
    passed: dict = dataclasses.field(default_factory=dict)


def loss(vectors, *, scale: float = 2.0, ignore=None):
    return vectors * scale


class Passing(Toy):
    passes_to = (loss,)
    supplied = ("ignore",)


def test_defaults_are_those_of_the_signature():
    assert options.defaults(Toy) == {"size": options.REQUIRED, "names": ("a",), "margin": 0.5}
    assert options.defaults(loss, ["vectors"]) == {"scale": 2.0, "ignore": None}


def test_options_of_a_function_that_is_passed_on_to_are_options_of_the_class():
    assert options.defaults(Passing)["scale"] == 2.0
    assert "ignore" not in options.defaults(Passing)
    made = options.make(Passing, {"size": 3, "scale": 7.0}, "toy")
    assert made.passed == {"scale": 7.0} and made.size == 3
    assert options.make(Passing, {"size": 3}, "toy").passed == {"scale": 2.0}


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"size": 1, "margn": 2}, "toy.margn is not an option of Toy; did you mean margin"),
        ({}, "toy.size is missing; Toy needs it"),
    ],
)
def test_wrong_options_are_refused_with_the_near_ones(settings, message):
    with pytest.raises(ValueError, match=message):
        options.make(Toy, settings, "toy")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (2**31, r"must be finite and below 2\*\*31"),
        (float("nan"), "must be finite"),
        (0, "toy.size=0 must be at least 1 and below 5"),
        (5, "must be at least 1 and below 5"),
        (True, None),
        ("0", None),
        (4.9, None),
    ],
)
def test_numbers_are_of_32_bits_and_in_their_range(value, message):
    if message is None:
        return options.check_number(value, "toy.size", 1, 5)
    with pytest.raises(ValueError, match=message):
        options.check_number(value, "toy.size", 1, 5)


def test_types_of_plain_options_are_checked():
    options.check(Toy, {"size": 2**31 - 1}, "toy")
    options.check(Toy, {}, "toy", partial=True)
    for wrong in (True, 1.0, "1"):
        with pytest.raises(ValueError, match=f"toy.size={wrong!r} must be of type int"):
            options.check(Toy, {"size": wrong}, "toy")
    options.check(Toy, {"size": 1, "margin": 1}, "toy")  # a whole number is a float, too
    with pytest.raises(ValueError, match="toy.margin=False must be of type float"):
        options.check(Toy, {"size": 1, "margin": False}, "toy")


@dataclasses.dataclass(frozen=True)
class Composed(Passing):
    pairs: tuple[str, ...] = ()
    weights: Mapping[str, float] = dataclasses.field(default_factory=dict)
    rate: Any | Callable[[int], float] = 0.0
    decay: float | Callable[[int], float] | None = None


@pytest.mark.parametrize(
    ("name", "wrong", "right", "kind"),
    [
        ("pairs", (1, 2), ("de-en",), r"tuple\[str, ...\]"),
        ("pairs", "de-en", ["de-en"], r"tuple\[str, ...\]"),
        ("weights", {"a": "1"}, {"a": 1}, r".*Mapping\[str, float\]"),
        ("weights", (1.0,), {}, r".*Mapping\[str, float\]"),
        ("decay", (True,), None, "float or NoneType"),
        ("decay", "0.1", 0.1, "float or NoneType"),
        ("scale", "2", 2, "float"),
    ],
)
def test_types_made_of_plain_ones_are_checked_too(name, wrong, right, kind):
    options.check(Composed, {"size": 1, "rate": "any", name: right}, "toy")
    with pytest.raises(ValueError, match=f"^toy.{name}=.* must be of type {kind}$"):
        options.check(Composed, {"size": 1, name: wrong}, "toy")


def test_errors_of_wrong_use_name_the_argument():
    with (
        pytest.raises(options.OptionError, match=r"^--size: too small$"),
        options.wrong_use("--size"),
    ):
        raise ValueError("too small")
    with pytest.raises(options.OptionError, match=r"^too small$"), options.wrong_use():
        raise ValueError("too small")
    with pytest.raises(OSError), options.wrong_use():
        raise OSError("unreadable")


MINI = xling_jax.load("mini")
SIDES = np.eye(4, 8), np.eye(4, 8)
CANDIDATES = mining.find_candidates(*SIDES, k=2)
CALLS = {
    mining.mine: (SIDES, "k threshold min_cosine memory_mb"),
    mining.choose_pairs: ([CANDIDATES], "threshold min_cosine"),
    knn.top_k: ([*SIDES, 1], "memory_mb"),
    align_documents: (SIDES, "k candidates memory_mb"),
    xling_jax.align_sentences: ((["a"], ["b"]), "max_sentences deletion radius num_samples seed"),
    Lawdr: ((), "rank seed"),
    xling_jax.load: (["mini"], "truncate_dim"),
    MINI.encode: ("a", "batch_size truncate_dim"),
    MINI.encode_stream: ("a", "batch_size"),
    MINI.encode_documents: (["a"], "batch_size"),
    MINI.encode_document_stream: (["a"], "batch_size"),
    MINI.with_max_length: ((), "max_length_tokens"),
}


@pytest.mark.parametrize("function", CALLS, ids=lambda function: function.__qualname__)
def test_public_functions_say_which_argument_is_no_number(function):
    arguments, names = CALLS[function]
    for name in names.split():
        for value in ("3", [3], float("nan"), True):
            with pytest.raises(ValueError, match=rf"^{name} must be a .*number; got \D?{value}"):
                function(*arguments, **{name: value})
