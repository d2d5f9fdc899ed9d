"""LASER in float64 NumPy, one sentence and one step at a time, written from the equations."""

import numpy as np


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def cell_step(preactivations, cell):
    """New (h, c) from what arrives at the gates i, f, g, o."""
    i, f, g, o = np.split(preactivations, 4)
    cell = sigmoid(f) * cell + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * np.tanh(cell), cell


def biases(params):
    return params["bias"] + params.get("recurrent_bias", 0)


def lstm_layer(params, inputs):
    """[n, in] without padding -> [n, directions * width]."""
    width = params["recurrent_kernel"].shape[1]
    outputs = []
    for direction in range(len(params["input_kernel"])):
        hidden, cell = np.zeros(width), np.zeros(width)
        states = np.zeros((len(inputs), width))
        order = range(len(inputs))
        for t in reversed(order) if direction else order:
            hidden, cell = cell_step(
                inputs[t] @ params["input_kernel"][direction]
                + hidden @ params["recurrent_kernel"][direction]
                + biases(params)[direction],
                cell,
            )
            states[t] = hidden
        outputs.append(states)
    return np.concatenate(outputs, axis=1)


def self_attention(params, states):
    """Rows of softmax(W2 tanh(W1 H^T)) H, side by side."""
    scores = (np.tanh(states @ params["inner"]["kernel"]) @ params["scores"]["kernel"]).T
    weights = np.exp(scores - scores.max(1, keepdims=True))
    return (weights / weights.sum(1, keepdims=True) @ states).ravel()


def encode(params, tokens, pooling="max", masks=None):
    """One sentence without padding, [w_1 .. w_n, </s>] -> [dim].

    Args:
        params: of a `LaserEncoder`.
        tokens: list of ids, not empty.
        pooling: max, mean or self_attention.
        masks: dropout masks, each [at least n, width]: of token vectors, then of every layer.
    """
    layers = sum(name.startswith("layers_") for name in params)
    masks = [mask[: len(tokens)] for mask in masks] if masks else [1.0] * (layers + 1)
    states = params["embedding"][tokens] * masks[0]
    for number in range(layers):
        states = lstm_layer(params[f"layers_{number}"], states) * masks[number + 1]
    if pooling == "self_attention":
        return self_attention(params["pooled"], states)
    return states.max(0) if pooling == "max" else states.mean(0)


def decode(params, sentence, language, previous, module, masks=None):
    """One sentence vector and shifted target -> logits [length, rows].

    Every step reads [token; sentence; language; previous output].

    Args:
        params: of a `LaserDecoder`.
        sentence: [sentence_width].
        language: its row of the language table.
        previous: list of ids.
        module: the decoder, for its options.
        masks: dropout masks, each [at least length, width]: of tokens, outputs and, where there
            is one, the bottleneck.
    """
    width = len(params["recurrent_kernel"])
    token_mask, output_mask, *bottleneck_mask = masks or (np.ones((len(previous), 1)),) * 3
    tokens = params["embedding"][previous]
    language_vector = params["language_embedding"][language]
    kernels = [params["token_kernel"], params["sentence_kernel"]]
    if module.language_at == "every_step":
        kernels.append(params["language_kernel"])
    else:
        tokens = np.concatenate([language_vector[None], tokens[1:]])
    if module.initial_state == "sentence":
        hidden, cell = sentence, np.zeros(width)
    else:
        initial = params["initial_state_projection"]
        hidden, cell = np.split(sentence @ initial["kernel"] + initial["bias"], 2)
    output, outputs = np.zeros(width), []
    for t in range(len(previous)):
        inputs = [tokens[t] * token_mask[t], sentence]
        if module.language_at == "every_step":
            inputs.append(language_vector)
        preactivations = np.concatenate(inputs) @ np.concatenate(kernels) + biases(params)
        preactivations += hidden @ params["recurrent_kernel"]
        if module.input_feeding:
            preactivations += output @ params["feed_kernel"]
        hidden, cell = cell_step(preactivations, cell)
        output = hidden * output_mask[t]
        outputs.append(output)
    outputs = np.array(outputs)
    if module.output_width:
        bottleneck = params["bottleneck"]
        outputs = outputs @ bottleneck["kernel"] + bottleneck["bias"]
        outputs = outputs * bottleneck_mask[0][: len(previous)]
    return outputs @ params["output_embedding"].T + params["output_bias"]
