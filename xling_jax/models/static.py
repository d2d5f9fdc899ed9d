"""Static encoders: the weighted mean of the vectors of tokens and of their combinations."""

from collections.abc import Iterator

import flax.linen as nn
import jax
import jax.numpy as jnp

from xling_jax.models.layers import Dropout, pad_row_zero, weighted_bag
from xling_jax.models.numpy_static import FEATURES, NO_KEY, StaticOptions, hash_feature


class StaticEncoder(nn.Module, StaticOptions):
    """Tokens to sentence vectors without layers.

    u = 1/n [ Σ_t a(w_t) E[w_t] + Σ_f c(f) F[f] ], with a learned weight for each token and each
    feature f, such as a pair of neighbors. The most frequent features of the training text have a
    row in F, others add nothing; `feature_keys` says which (`numpy_static.choose_keys`), is set
    when training begins, and is no parameter to train. Rows of F may be shorter than those of E,
    with zeros behind. F starts at 0, so that training can continue from an encoder without
    features.
    Without layers the sum needs no position, and one table serves both sides of a pair.

    Trained parameters are float32; they may be stored in less.

    Attributes (see also `numpy_static.StaticOptions`):
        token_dropout, feature_dropout: drop whole tokens and features.
        init_stddev: of the token table.
    """

    token_dropout: float = 0.0
    feature_dropout: float = 0.0
    init_stddev: float = 0.05
    dropout_generator: str = "threefry"

    layers = 0
    training_only = ("token_dropout", "feature_dropout", "init_stddev")

    def __post_init__(self):
        StaticOptions.__post_init__(self)
        super().__post_init__()

    def setup(self):
        shapes = self.trained_shapes()
        table_init = pad_row_zero(nn.initializers.normal(self.init_stddev), self.pad_id)
        self.embedding = self.param("embedding", table_init, shapes["embedding"])
        ones, zeros = nn.initializers.ones, nn.initializers.zeros
        self.token_weight = self.param("token_weight", ones, shapes["token_weight"])
        self.drop_tokens = Dropout(self.token_dropout, self.dropout_generator)
        if self.features:
            shape = shapes["feature_embedding"]
            self.feature_embedding = self.param("feature_embedding", zeros, shape)
            self.feature_weight = self.param("feature_weight", ones, shape[:1])
            none = nn.initializers.constant(NO_KEY)
            self.feature_keys = self.param("feature_keys", none, shape[:1])
            self.drop_features = Dropout(self.feature_dropout, self.dropout_generator)

    def table(self) -> jax.Array:
        """The token table, for a head that shares it."""
        return self.embedding

    def __call__(self, tokens: jax.Array, deterministic: bool = True) -> jax.Array:
        """[batch, length] ids, padded on the right -> [batch, width]; zeros for padding only."""
        mask = tokens != self.pad_id
        share = 1 / jnp.maximum(mask.sum(1, keepdims=True), 1)
        weights = jnp.where(mask, jnp.take(self.token_weight, tokens, axis=0), 0) * share
        weights = self.drop_tokens(weights, deterministic)
        sums = weighted_bag(self.embedding, weights, tokens)
        if not self.features:
            return self._scaled(sums)
        rows, has_row = (jnp.concatenate(parts, axis=1) for parts in zip(*self._rows(tokens, mask)))
        weights = jnp.where(has_row, jnp.take(self.feature_weight, rows, axis=0), 0) * share
        weights = self.drop_features(weights, deterministic)
        of_features = weighted_bag(self.feature_embedding, weights, rows)
        behind = self.width - of_features.shape[1]
        return self._scaled(sums + jnp.pad(of_features, ((0, 0), (0, behind))))

    def _scaled(self, vectors: jax.Array) -> jax.Array:
        if not self.normalize:
            return vectors
        squares = jnp.square(vectors).sum(1, keepdims=True)
        return vectors * jax.lax.rsqrt(jnp.maximum(squares, 1e-24))

    def _rows(self, tokens: jax.Array, mask: jax.Array) -> Iterator[tuple[jax.Array, jax.Array]]:
        """The row of each feature, kind by kind, and whether it has one, [batch, features]."""
        keys = jax.lax.stop_gradient(self.feature_keys).astype(jnp.int32)
        for name in self.features:
            shifts, length = FEATURES[name], tokens.shape[1] - FEATURES[name][-1]
            columns = [tokens[:, shift : shift + max(length, 0)] for shift in shifts]
            hashes = hash_feature(name, columns).astype(jnp.int32)
            rows = jnp.minimum(jnp.searchsorted(keys, hashes), len(keys) - 1)
            yield rows, mask[:, shifts[-1] :] & (jnp.take(keys, rows) == hashes)
