"""ONNX graphs of the families that jax2onnx cannot convert, node by node.

static      a loop over positions of unknown number, and searches among the keys of features
laser       a scan over a sequence of unknown length
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from xling_jax.models.numpy_encoders import LaserOptions
from xling_jax.models.numpy_static import (
    FEATURES,
    HASH_FACTORS,
    HASH_SEEDS,
    LAST_HASH_FACTOR,
    FeatureFinder,
    NumpyStatic,
    Table,
)

OPSET = 23
INPUT, OUTPUT = "tokens", "embeddings"

_WORD = 0xFFFFFFFF  # 32 bits
_TO_THE_END = np.iinfo(np.int64).max


class _Graph:
    """Nodes and constants; every method returns the name of a value."""

    def __init__(self) -> None:
        self._nodes: list[onnx.NodeProto] = []
        self._constants: list[onnx.TensorProto] = []

    def __call__(self, op: str, *inputs: str | np.ndarray, **attributes: Any) -> str:
        """Adds a node; arrays among its inputs become constants."""
        names = [x if isinstance(x, str) else self.constant(x) for x in inputs]
        output = f"{op.lower()}_{len(self._nodes)}"
        self._nodes.append(onnx.helper.make_node(op, names, [output], **attributes))
        return output

    def constant(self, value: np.ndarray) -> str:
        """Adds a constant."""
        name = f"constant_{len(self._constants)}"
        self._constants.append(onnx.numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def prepend(self, graph: onnx.GraphProto) -> None:
        """Puts the nodes before those of a graph, under names of their own."""
        own = {name for node in self._nodes for name in node.output}
        own |= {constant.name for constant in self._constants}
        prefixed = lambda name: f"padded_{name}" if name in own else name
        for node in self._nodes:
            node.input[:] = map(prefixed, node.input)
            node.output[:] = map(prefixed, node.output)
        for constant in self._constants:
            constant.name = prefixed(constant.name)
        nodes = [*self._nodes, *graph.node]
        del graph.node[:]
        graph.node.extend(nodes)
        graph.initializer.extend(self._constants)

    def model(self, result: str, dim: int) -> onnx.ModelProto:
        """The model from `tokens` [batch, length] int32 to `embeddings` [batch, dim]."""
        self._nodes.append(onnx.helper.make_node("Identity", [result], [OUTPUT]))
        info, kinds = onnx.helper.make_tensor_value_info, onnx.TensorProto
        graph = onnx.helper.make_graph(
            self._nodes,
            "encoder",
            [info(INPUT, kinds.INT32, ["batch", "length"])],
            [info(OUTPUT, kinds.FLOAT, ["batch", dim])],
            self._constants,
        )
        opsets = [onnx.helper.make_opsetid("", OPSET)]
        return onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10)


def static_graph(static: NumpyStatic, stored: Mapping[str, np.ndarray]) -> onnx.ModelProto:
    """The graph of a static encoder: 1/n Σ_r f_r T_r over the rows r of a sentence's n tokens.

    Scaled to length 1 where the encoder does that. 8-bit rows stay 8-bit, 4-bit rows become 8-bit.
    """
    add = _Graph()
    table, *of_features = (table.unpacked() for table in static.tables(stored))
    mask = add("Not", add("Equal", INPUT, np.array(static.pad_id, np.int32)))
    counts = add("ReduceSum", add("Cast", mask, to=onnx.TensorProto.FLOAT), _ints(1), keepdims=1)
    share = add("Reciprocal", add("Max", counts, np.ones(1, np.float32)))
    tokens = add("Cast", INPUT, to=onnx.TensorProto.INT64)
    result = _weighted_rows(add, table, tokens, mask, share)
    for features in of_features:
        finder = FeatureFinder(static, stored["feature_keys"])
        dtype = np.uint16 if static.feature_rows <= 1 << 16 else np.int32
        slots = add.constant(finder.slots.astype(dtype))
        keys = add.constant(finder.keys.astype(np.int64))
        rows, is_real = [], []
        for name in static.features:
            last = FEATURES[name][-1]
            columns = [_columns(add, tokens, place, last) for place in FEATURES[name]]
            hashes = _hash(add, name, columns)
            slot = add("BitwiseAnd", hashes, np.array(len(finder.slots) - 1, np.int64))
            rows.append(add("Cast", add("Gather", slots, slot), to=onnx.TensorProto.INT64))
            known = add("Equal", add("Gather", keys, rows[-1]), hashes)
            is_real.append(add("And", known, _columns(add, mask, last, last)))
        row, real = (add("Concat", *parts, axis=1) for parts in (rows, is_real))
        sums = _weighted_rows(add, features, row, real, share)
        if static.feature_dims < static.width:
            sums = add(
                "Pad", sums, np.array([0, 0, 0, static.width - static.feature_dims], np.int64)
            )
        result = add("Add", result, sums)
    if static.normalize:
        squares = add("ReduceSumSquare", result, _ints(1), keepdims=1)
        # Under the root, as in `models.bert.project`: the vector of no tokens stays zero.
        length = add("Sqrt", add("Max", squares, np.array([1e-24], np.float32)))
        result = add("Div", result, length)
    return add.model(result, static.width)


def _weighted_rows(add: _Graph, table: Table, row: str, is_real: str, share: str) -> str:
    """[batch, dims]: the sum of the rows of a table that are real, times their factors."""
    weights = add("Mul", add("Gather", table.factors.astype(np.float32), row), share)
    weights = add("Where", is_real, weights, np.zeros(1, np.float32))
    vectors = add("Cast", add("Gather", table.rows, row), to=onnx.TensorProto.FLOAT)
    return add("Squeeze", add("MatMul", add("Unsqueeze", weights, _ints(1)), vectors), _ints(1))


def _columns(add: _Graph, tokens: str, place: int, last: int) -> str:
    """Columns place, place + 1, … of all features whose last token is `last` from the first."""
    end = _ints(place - last if place < last else _TO_THE_END)
    return add("Slice", tokens, _ints(place), end, _ints(1))


def _hash(add: _Graph, name: str, columns: Sequence[str]) -> str:
    """`numpy_static.hash_feature` in 64-bit integers."""
    word = np.array(_WORD, np.int64)

    def times(value: str, factor: int) -> str:
        # In halves of the factor: no product exceeds 64 bits, whose overflow ONNX leaves open.
        low = add("Mul", value, np.array(factor & 0xFFFF, np.int64))
        high = add("Mul", value, np.array(factor >> 16, np.int64))
        high = add("BitwiseAnd", high, np.array(0xFFFF, np.int64))
        high = add("Mul", high, np.array(0x10000, np.int64))
        return add("BitwiseAnd", add("Add", low, high), word)

    bits = add.constant(np.array(HASH_SEEDS[name], np.int64))
    for factor, ids in zip(HASH_FACTORS, columns):
        bits = times(add("BitwiseXor", bits, ids), int(factor))
    # A division of positive numbers by 2**n is a shift.
    bits = add("BitwiseXor", bits, add("Div", bits, np.array(1 << 15, np.int64)))
    return add("Div", times(bits, LAST_HASH_FACTOR), np.array(1 << 8, np.int64))


def laser_graph(module: LaserOptions, params: Mapping[str, Any]) -> onnx.ModelProto:
    """The graph of a `models.laser.LaserEncoder`, with the LSTM of ONNX."""
    add = _Graph()
    tokens = add("Transpose", INPUT, perm=[1, 0])
    mask = add("Not", add("Equal", tokens, np.array(module.pad_id, np.int32)))
    lengths = add("ReduceSum", add("Cast", mask, to=onnx.TensorProto.INT32), _ints(0), keepdims=0)
    states = add("Gather", np.asarray(params["embedding"]), tokens)
    for number in range(module.layers):
        layer = {name: np.asarray(value) for name, value in params[f"layers_{number}"].items()}
        bias = layer["bias"] + layer.get("recurrent_bias", 0)
        directions, width = layer["recurrent_kernel"].shape[:2]
        output = add(
            "LSTM",
            states,
            _lstm_gates(layer["input_kernel"].swapaxes(1, 2)),
            _lstm_gates(layer["recurrent_kernel"].swapaxes(1, 2)),
            np.concatenate([_lstm_gates(bias), np.zeros_like(bias)], axis=1),
            lengths,
            hidden_size=width,
            direction="bidirectional" if directions == 2 else "forward",
        )  # [length, directions, batch, width]
        output = add("Transpose", output, perm=[0, 2, 1, 3])
        states = add("Reshape", output, np.array([0, 0, directions * width], np.int64))
    real = add("Unsqueeze", mask, _ints(2))
    states = add("Where", real, states, np.zeros(1, np.float32))
    pooled, dim = _pool(add, module, params, states, real)
    has_tokens = add("Greater", add("Unsqueeze", lengths, _ints(1)), np.array(0, np.int32))
    return add.model(add("Where", has_tokens, pooled, np.zeros(1, np.float32)), dim)


def _pool(
    add: _Graph, module: LaserOptions, params: Mapping[str, Any], states: str, real: str
) -> tuple[str, int]:
    """[length, batch, width] and [length, batch, 1] -> [batch, dim], and dim."""
    width, pooling = module.width, module.pooling
    if pooling == "max":
        lowest = np.array(-np.inf, np.float32)
        return add("ReduceMax", add("Where", real, states, lowest), _ints(0), keepdims=0), width
    if pooling == "mean":
        counts = add(
            "ReduceSum", add("Cast", real, to=onnx.TensorProto.FLOAT), _ints(0), keepdims=0
        )
        counts = add("Max", counts, np.ones(1, np.float32))
        return add("Div", add("ReduceSum", states, _ints(0), keepdims=0), counts), width
    inner, scores = (np.asarray(params["pooled"][name]["kernel"]) for name in ("inner", "scores"))
    attention = add("MatMul", add("Tanh", add("MatMul", states, inner)), scores)
    attention = add("Where", real, attention, np.array(-1e9, np.float32))
    attention = add("Softmax", attention, axis=0)
    pooled = add("Einsum", attention, states, equation="lbh,lbw->bhw")
    dim = scores.shape[1] * width
    return add("Reshape", pooled, np.array([0, dim], np.int64)), dim


def accept_empty(model: onnx.ModelProto, pad_id: int) -> onnx.ModelProto:
    """Adds to a graph that it takes tokens [0, length] and [batch, 0].

    onnxruntime divides by zero on them, which ends the process. So tokens get at least one row and
    one column of padding, and the vectors of rows that were added are cut off.
    """
    add = _Graph()
    shape = add("Shape", INPUT)
    missing = add("Max", add("Sub", _ints(1, 1), shape), _ints(0, 0))
    padding = np.array(pad_id, np.int32)
    tokens = add("Pad", INPUT, add("Concat", _ints(0, 0), missing, axis=0), padding)
    batch, start = add("Slice", shape, _ints(0), _ints(1)), add.constant(_ints(0))
    for node in model.graph.node:
        for place, name in enumerate(node.input):
            if name == INPUT:
                node.input[place] = f"padded_{tokens}"
        for place, name in enumerate(node.output):
            if name == OUTPUT:
                node.output[place] = f"padded_{OUTPUT}"
    add.prepend(model.graph)
    inputs = [f"padded_{name}" for name in (OUTPUT, start, batch)]
    model.graph.node.append(onnx.helper.make_node("Slice", inputs, [OUTPUT]))
    return model


def _lstm_gates(array: np.ndarray) -> np.ndarray:
    """[directions, 4 · width, …] from the order i, f, g, o to that of ONNX, i, o, f, g."""
    i, f, g, o = np.split(array, 4, axis=1)
    return np.concatenate([i, o, f, g], axis=1)


def _ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)
