"""Contrastive losses over a batch of translations (Mao et al. 2021).

Every sentence of the global batch is compared with every other one; with a batch that is sharded
over devices the compiler exchanges the vectors.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

SIMILARITIES = ("dot", "cosine")
REDUCTIONS = ("sum", "mean")
FORMS = ("log_cos", "squared")

# Below every logit, and finite: a row without any candidate has no NaN in its gradient.
_EXCLUDED = -1e30
# Of two softmax values; at 1 log cos and its slope are infinite. Beyond it the gradient is 0.
_LARGEST_DIFFERENCE = 1 - 1e-5


def _require_one_shape(source: jax.Array, target: jax.Array) -> None:
    if source.shape != target.shape:
        raise ValueError(
            f"source and target must have one shape [batch, dim]; found {source.shape} and "
            f"{target.shape}"
        )


def _valid_rows(vectors: jax.Array, mask: jax.Array) -> jax.Array:
    """In float32, with zeros in padding rows."""
    return jnp.where(mask[:, None], vectors.astype(jnp.float32), 0)


def _normalized(vectors: jax.Array) -> jax.Array:
    """Vectors of length 1; zero stays zero, with gradient zero."""
    squares = (vectors**2).sum(1, keepdims=True)
    positive = squares > 0
    return jnp.where(positive, vectors * jax.lax.rsqrt(jnp.where(positive, squares, 1)), 0)


def _products(left: jax.Array, right: jax.Array) -> jax.Array:
    """All inner products at full precision: the losses see small differences of large products."""
    return jnp.matmul(left, right.T, precision=jax.lax.Precision.HIGHEST)


def equal_sentences(source_tokens: jax.Array, target_tokens: jax.Array, pad_id: int) -> jax.Array:
    """Pairs of rows that share their source sentence or their target sentence.

    Such rows are translations of each other, and no negatives.

    Args:
        source_tokens: [batch, length] int32, padded on the right.
        target_tokens: [batch, length] int32, the same of the translations.
        pad_id: id of padding; an empty sentence equals none.

    Returns:
        [batch, batch] bool, symmetric; False on the diagonal.
    """

    def equal(tokens: jax.Array) -> jax.Array:
        numbers = _sentence_numbers(tokens)
        return (numbers[:, None] == numbers) & (tokens != pad_id).any(1)[:, None]

    different_rows = ~jnp.eye(source_tokens.shape[0], dtype=bool)
    return (equal(source_tokens) | equal(target_tokens)) & different_rows


def _sentence_numbers(tokens: jax.Array) -> jax.Array:
    """[batch, length] -> [batch] int32, equal where all tokens are.

    Rows are numbered by their first tokens, one more at a time. Comparing all with all would take
    batch² · length steps, more than the encoder for thousands of short sentences.
    """

    def refine(place: jax.Array, numbers: jax.Array) -> jax.Array:
        token = jnp.take(tokens, place, axis=1)
        order = jnp.lexsort((token, numbers))
        sorted_rows = jnp.stack([numbers[order], token[order]])
        changes = (sorted_rows[:, 1:] != sorted_rows[:, :-1]).any(0)
        return numbers.at[order[1:]].set(jnp.cumsum(changes, dtype=jnp.int32)).at[order[0]].set(0)

    start = jnp.zeros(tokens.shape[0], jnp.int32)
    return jax.lax.fori_loop(0, tokens.shape[1], refine, start)


def alignment_loss(
    source: jax.Array,
    target: jax.Array,
    mask: ArrayLike,
    *,
    similarity: str = "dot",
    scale: float = 1.0,
    margin: float = 0.0,
    ignore: jax.Array | None = None,
) -> tuple[jax.Array, jax.Array]:
    """Contrast of each sentence's translation with the other translations of the batch.

        ALIGN = − Σ_j [ log softmax_k(s_jk)_j + log softmax_k(s_kj)_j ]           (Eq. 5)

    with s_jk = scale · (sim(u_j, v_k) − margin · [j = k]). Published: dot products, scale 1, no
    margin. Cosine with a scale and a margin is the additive-margin softmax of Yang et al. (2019).

    Args:
        source: [batch, dim], sentence vectors u.
        target: [batch, dim], vectors v of their translations.
        mask: [batch] bool; False rows are neither compared nor compared with.
        similarity: `dot` or `cosine`.
        scale: inverse temperature.
        margin: by which a translation must be nearer than all else, in units of the similarity.
        ignore: [batch, batch] bool, pairs (j, k) that are no negatives, see `equal_sentences`; the
            diagonal always counts. None for none.

    Returns:
        ALIGN summed over valid rows and both ways (float32), and, as a metric, the number of rows
        whose most similar candidate is their translation, mean of both ways (float32).

    Raises:
        ValueError: for an unknown similarity or unequal shapes.
    """
    _require_one_shape(source, target)
    if similarity not in SIMILARITIES:
        raise ValueError(f"similarity={similarity!r} must be one of {', '.join(SIMILARITIES)}")
    mask = jnp.asarray(mask, bool)
    source, target = _valid_rows(source, mask), _valid_rows(target, mask)
    if similarity == "cosine":
        source, target = _normalized(source), _normalized(target)
    compared = mask[:, None] & mask
    if ignore is not None:
        compared &= ~ignore
    translation = jnp.eye(mask.shape[0], dtype=bool)
    # Rows of padding have themselves as only candidate: loss and gradient are 0.
    compared |= translation
    products = jnp.where(compared, _products(source, target), _EXCLUDED)
    logits = jnp.where(compared, scale * (products - margin * translation), _EXCLUDED)
    positive = jnp.diagonal(logits)
    loss, correct = 0.0, 0.0
    for axis in (1, 0):
        loss += (jax.nn.logsumexp(logits, axis=axis) - positive).sum()
        best = jnp.argmax(products, axis=axis) == jnp.arange(mask.shape[0])
        correct += (best & mask).sum() / 2
    return loss, correct


def _monolingual_distribution(products: jax.Array, compared: jax.Array) -> jax.Array:
    """Softmax over each row's pairs that are compared; 0 elsewhere."""
    return jnp.where(compared, jax.nn.softmax(jnp.where(compared, products, _EXCLUDED)), 0)


def _log_cos(difference: jax.Array) -> jax.Array:
    """−log cos(π x / 2), as −log(1 − 2 sin²(π x / 4)): exact near 0, bounded at ±1."""
    difference = jnp.clip(difference, -_LARGEST_DIFFERENCE, _LARGEST_DIFFERENCE)
    return -jnp.log1p(-2 * jnp.sin(np.pi / 4 * difference) ** 2)


def similarity_distribution_loss(
    source: jax.Array,
    target: jax.Array,
    mask: ArrayLike,
    *,
    include_diagonal: bool = True,
    reduction: str = "sum",
    form: str = "log_cos",
) -> jax.Array:
    """Disagreement of the two languages on which sentences of a batch are alike.

        SIM = − Σ_ij log cos( π/2 (S1_ij − S2_ij) )                              (Eq. 6)

    with S1 and S2 the softmax over the rows of U Uᵀ and V Vᵀ. As published the diagonal takes part
    in both; it is usually far the largest, which leaves little for other pairs and little gradient.

    Args:
        source: [batch, dim], sentence vectors U.
        target: [batch, dim], vectors V of their translations.
        mask: [batch] bool; False rows take part in nothing.
        include_diagonal: compare sentences with themselves (published code); the figure of the
            paper does not.
        reduction: `sum` over pairs (published; it grows with the batch) or their `mean`.
        form: `log_cos`, or `squared`: Σ_ij (u_i · u_j − v_i · v_j)², before any softmax, the
            alternative in a footnote of the paper.

    Returns:
        SIM, float32 scalar; 0 with gradient 0 if U = V.

    Raises:
        ValueError: for an unknown option or unequal shapes.
    """
    _require_one_shape(source, target)
    if reduction not in REDUCTIONS:
        raise ValueError(f"reduction={reduction!r} must be one of {', '.join(REDUCTIONS)}")
    if form not in FORMS:
        raise ValueError(f"form={form!r} must be one of {', '.join(FORMS)}")
    mask = jnp.asarray(mask, bool)
    source, target = _valid_rows(source, mask), _valid_rows(target, mask)
    compared = mask[:, None] & mask
    if not include_diagonal:
        compared &= ~jnp.eye(mask.shape[0], dtype=bool)
    products = _products(source, source), _products(target, target)
    if form == "squared":
        values = jnp.where(compared, (products[0] - products[1]) ** 2, 0)
    else:
        first, second = (_monolingual_distribution(p, compared) for p in products)
        values = _log_cos(first - second)
    total = values.sum()
    return total if reduction == "sum" else total / jnp.maximum(compared.sum(), 1)
