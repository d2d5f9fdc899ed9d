"""T-LASER in float64 NumPy, written from the description of the published model, nothing fused."""

import jax
import numpy as np


def random_params(init, seed=0):
    """Float32 parameters in the shapes of `init`, none of them at a special value.

    Layer-norm gains lie around 1, biases around 0, matrices are large enough to matter.
    """
    random = np.random.default_rng(seed)

    def draw(path, shape):
        values = random.normal(size=shape.shape) * 0.3
        return (values + (path[-1].key == "scale")).astype(np.float32)

    return jax.tree_util.tree_map_with_path(draw, jax.eval_shape(init))


def as_float64(params):
    return jax.tree.map(lambda array: np.asarray(array, np.float64), params)


def dense(params, x):
    return x @ params["kernel"] + params.get("bias", 0)


def layer_norm(params, x, epsilon=1e-5):
    mean = x.mean(-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(-1, keepdims=True)
    return (x - mean) / np.sqrt(variance + epsilon) * params["scale"] + params["bias"]


def softmax(x):
    shifted = np.exp(x - x.max(-1, keepdims=True))
    return shifted / shifted.sum(-1, keepdims=True)


def attention(query, key, value, output, heads, queries, keys, allowed):
    """One sentence: queries [q, width], keys [k, key_width], allowed [q, k]."""
    width = output["kernel"].shape[0]
    head = width // heads
    q, k, v = dense(query, queries), dense(key, keys), dense(value, keys)
    attended = np.zeros(q.shape)
    for h in range(heads):
        part = slice(h * head, (h + 1) * head)
        scores = q[:, part] @ k[:, part].T / np.sqrt(head)
        attended[:, part] = softmax(np.where(allowed, scores, -np.inf)) @ v[:, part]
    return dense(output, attended)


def self_attention(params, heads, x, allowed):
    names = ("query", "key", "value", "output")
    return attention(*(params[name] for name in names), heads, x, x, allowed)


def feed_forward(params, x):
    return dense(params["outer"], np.maximum(dense(params["inner"], x), 0))


def embed(table, tokens):
    """√width E[w] plus positions 2, 3, …: sines in the first half, cosines in the second."""
    width = table.shape[1]
    half = width // 2
    states = np.zeros((len(tokens), width))
    for t, token in enumerate(tokens):
        states[t] = table[token] * np.sqrt(width)
        for i in range(half):
            frequency = 10000 ** (-i / (half - 1))
            states[t, i] += np.sin((t + 2) * frequency)
            states[t, half + i] += np.cos((t + 2) * frequency)
    return states


def encode(params, tokens, heads, pooling="first"):
    """One sentence without padding, [<s>, w_1 .. w_n, </s>] -> [width]; every layer in full."""
    states = embed(params["embed"]["embedding"], tokens)
    allowed = np.ones((len(tokens), len(tokens)), bool)
    for number in range(sum(name.startswith("blocks") for name in params)):
        block = params[f"blocks_{number}"]
        normed = layer_norm(block["attention_norm"], states)
        states = states + self_attention(block["attention"], heads, normed, allowed)
        states = states + feed_forward(block["ffn"], layer_norm(block["ffn_norm"], states))
    states = layer_norm(params["final_norm"], states)
    return {"first": states[0], "mean": states.mean(0), "max": states.max(0)}[pooling]


def decode(params, sentence, language, previous, heads, language_at="memory"):
    """One sentence vector and shifted target without padding -> logits [length, rows].

    Cross-attention is carried out over its single slot where the parameters hold its query and
    key projections.
    """
    language_vector = params["language_embedding"][language]
    states = embed(params["embed"]["embedding"], previous)
    memory = sentence
    if language_at == "memory":
        memory = np.concatenate([sentence, language_vector])
    else:
        repeated = np.tile(language_vector, (len(previous), 1))
        states = dense(params["input_projection"], np.concatenate([states, repeated], axis=1))
    causal = np.tril(np.ones((len(previous), len(previous)), bool))
    block = params["blocks_0"]
    normed = layer_norm(block["attention_norm"], states)
    states = states + self_attention(block["attention"], heads, normed, causal)
    if "memory_query" in block:
        names = ("memory_query", "memory_key", "memory_value", "memory_output")
        normed = layer_norm(block["memory_norm"], states)
        slot = np.ones((len(previous), 1), bool)
        cross = attention(*(block[name] for name in names), heads, normed, memory[None], slot)
    else:
        cross = dense(block["memory_output"], dense(block["memory_value"], memory))
    states = states + cross
    states = states + feed_forward(block["ffn"], layer_norm(block["ffn_norm"], states))
    return layer_norm(params["final_norm"], states) @ params["output_embedding"].T
