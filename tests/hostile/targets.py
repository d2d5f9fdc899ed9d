"""All readers and loaders, by name."""

from tests.hostile.model_files import MODEL_TARGETS
from tests.hostile.text_files import TEXT_TARGETS

TARGETS = {target.name: target for target in [*TEXT_TARGETS, *MODEL_TARGETS]}
