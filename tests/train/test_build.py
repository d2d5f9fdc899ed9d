import flax.linen as nn
import pytest

from tests.train.synthetic import smoke_config
from xling_jax.models import registry
from xling_jax.models.tlaser import TLaserEncoder
from xling_jax.train.build import build


class WrongSize(TLaserEncoder):
    @property
    def dim(self):
        return self.width + 1


def test_an_encoder_that_returns_another_size_is_refused_before_training(monkeypatch):
    monkeypatch.setitem(registry.ENCODERS._entries, "tlaser", (f"{__name__}:WrongSize", ""))
    with pytest.raises(
        ValueError, match=r"WrongSize must return .* dim=33; found float32 \[batch, 32"
    ):
        build(smoke_config())


def test_what_a_config_describes_has_shapes_and_no_arrays():
    built = build(smoke_config())
    assert isinstance(built.objective.setting.model, nn.Module)
    assert built.shapes.params["encoder"] and built.settings.total_steps == 8
