"""Static encoders: the weighted mean of the vectors of tokens and of their combinations."""

from collections.abc import Iterator

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from xling_jax.models.layers import Dropout, pad_row_zero, weighted_bag
from xling_jax.models.static_form import FEATURES, StaticForm, hash_feature


class StaticEncoder(nn.Module):
    """Tokens to sentence vectors without layers.

    u = 1/n [ Σ_t a(w_t) E[w_t] + Σ_f c(f) F[f] ], with a learned weight for each token and for each
    row of features f, such as pairs of neighbors, that are hashed to the rows of F. F starts at 0,
    so that training can continue from an encoder without features. Without layers the sum needs no
    position, and one table serves both sides of a pair.

    Trained parameters are float32; they may be stored in less.

    Attributes (see also `static_form.StaticForm`):
        token_dropout, feature_dropout: drop whole tokens and features.
        init_stddev: of the token table.
    """

    vocab_size: int
    width: int = StaticForm.width
    features: tuple[str, ...] = StaticForm.features
    feature_rows: int = StaticForm.feature_rows
    token_dropout: float = 0.0
    feature_dropout: float = 0.0
    pad_id: int = StaticForm.pad_id
    init_stddev: float = 0.05
    vocab_multiple: int = StaticForm.vocab_multiple
    dropout_generator: str = "threefry"

    layers = 0
    specials = ((), ())
    training_only = ("token_dropout", "feature_dropout", "init_stddev")

    def __post_init__(self):
        self.features = tuple(self.features)  # JSON has lists
        super().__post_init__()

    @property
    def dim(self) -> int:
        """Embedding size."""
        return self.width

    @property
    def form(self) -> StaticForm:
        """What determines the vectors, without JAX."""
        return StaticForm(
            *(self.vocab_size, self.width, self.features, self.feature_rows, self.pad_id),
            vocab_multiple=self.vocab_multiple,
        )

    def setup(self):
        shapes = {name: shape for name, (shape, _) in self.form.parameters.items()}
        table_init = pad_row_zero(nn.initializers.normal(self.init_stddev), self.pad_id)
        self.embedding = self.param("embedding", table_init, shapes["embedding"])
        ones, zeros = nn.initializers.ones, nn.initializers.zeros
        self.token_weight = self.param("token_weight", ones, shapes["token_weight"])
        self.drop_tokens = Dropout(self.token_dropout, self.dropout_generator)
        if self.features:
            shape = shapes["feature_embedding"]
            self.feature_embedding = self.param("feature_embedding", zeros, shape)
            self.feature_weight = self.param("feature_weight", ones, shape[:1])
            self.drop_features = Dropout(self.feature_dropout, self.dropout_generator)

    def table(self) -> jax.Array:
        """The token table, for a decoder or head that shares it."""
        return self.embedding

    def __call__(self, tokens: jax.Array, deterministic: bool = True) -> jax.Array:
        """[batch, length] ids, padded on the right -> [batch, width]; zeros for padding only."""
        mask = tokens != self.pad_id
        share = 1 / jnp.maximum(mask.sum(1, keepdims=True), 1)
        weights = jnp.where(mask, jnp.take(self.token_weight, tokens, axis=0), 0) * share
        weights = self.drop_tokens(weights, deterministic)
        sums = weighted_bag(self.embedding, weights, tokens)
        if not self.features:
            return sums
        rows, is_real = (jnp.concatenate(parts, axis=1) for parts in zip(*self._rows(tokens, mask)))
        weights = jnp.where(is_real, jnp.take(self.feature_weight, rows, axis=0), 0) * share
        weights = self.drop_features(weights, deterministic)
        return sums + weighted_bag(self.feature_embedding, weights, rows)

    def _rows(self, tokens: jax.Array, mask: jax.Array) -> Iterator[tuple[jax.Array, jax.Array]]:
        """Rows of each kind of feature and which are real, [batch, length - distance]."""
        for name in self.features:
            places, length = FEATURES[name], tokens.shape[1] - FEATURES[name][-1]
            columns = [tokens[:, place : place + max(length, 0)] for place in places]
            rows = hash_feature(name, columns) % np.uint32(self.feature_rows)
            yield rows.astype(jnp.int32), mask[:, places[-1] :]
