"""An encoder under the model protocol of MTEB (version 2), the embedding benchmark.

    import mteb
    from xling_jax.mteb import MtebEncoder

    mteb.evaluate(MtebEncoder("runs/quickstart"), mteb.get_tasks(["STS17"]))

Importing this module does not import mteb.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from xling_jax.encode.encoder import Encoder
from xling_jax.encode.model_directory import find_model_directory

if TYPE_CHECKING:
    from mteb.abstasks.task_metadata import TaskMetadata
    from mteb.models.model_meta import ModelMeta
    from mteb.types import PromptType

__all__ = ["MtebEncoder"]


class MtebEncoder:
    """A model for MTEB: `encode` for its batches, similarities, and metadata.

    Vectors are compared by cosine. MTEB's batch size says how many texts it hands over at a time
    and not how many the device works on: the encoder takes all of them and forms batches of equal
    length itself.

    Args:
        model_name: a model directory, a workdir, the name of a packaged encoder, or an `Encoder`.
        revision: of the model, in the names of MTEB's result files; the fingerprint when None.
        batch_size: see `Encoder.encode`; smaller needs less memory.
        name: of the model, in the names of MTEB's result files, as "organization/model".
    """

    def __init__(
        self,
        model_name: str | os.PathLike[str] | Encoder,
        revision: str | None = None,
        *,
        batch_size: int | None = None,
        name: str | None = None,
    ):
        if isinstance(model_name, (str, os.PathLike)):
            directory = find_model_directory(model_name)
            self.encoder = Encoder.from_directory(directory)
            # A workdir is called by its own name, not by that of the `encoder/` in it.
            named = directory.parent if directory.name == "encoder" else directory
            name = name or f"xling_jax/{named.resolve().name}"
        else:
            self.encoder = model_name
        self._name = name or "xling_jax/encoder"
        self._revision = revision or self.encoder.fingerprint or "unsaved"
        self._batch_size = batch_size

    def encode(
        self,
        inputs: Any,
        *,
        task_metadata: TaskMetadata | None = None,
        prompt_type: PromptType | None = None,
        **kwargs: Any,
    ) -> np.ndarray:
        """Embeds the texts of MTEB's batches, each with a list of strings under "text": [n, dim].

        Models with prompts get that which MTEB finds for the task and the kind of input ("query" or
        "document") among their names. Of the other arguments only `show_progress_bar` counts.
        """
        texts: list[str] = []
        for batch in inputs:
            if "text" not in batch:
                raise ValueError(f"the encoder takes texts only; a batch holds {sorted(batch)}")
            texts.extend(batch["text"])
        show = bool(kwargs.get("show_progress_bar", False))
        options: dict[str, Any] = {"batch_size": self._batch_size, "show_progress": show}
        encode = self.encoder.encode
        if self.encoder.prompts and task_metadata is not None:
            from mteb.models.abs_encoder import get_prompt_name

            if name := get_prompt_name(self.encoder.prompts, task_metadata, prompt_type):
                options["prompt_name"] = name
            elif prompt_type is not None:
                encode = getattr(self.encoder, f"encode_{prompt_type.value}")
        return encode(texts, **options)

    def similarity(self, embeddings1: Any, embeddings2: Any) -> Any:
        """Returns the cosine of every row of [n, dim] with every row of [m, dim], [n, m]."""
        from mteb.similarity_functions import cos_sim

        return cos_sim(embeddings1, embeddings2)

    def similarity_pairwise(self, embeddings1: Any, embeddings2: Any) -> Any:
        """Returns the cosine of each row of [n, dim] with the same row of the other, [n]."""
        from mteb.similarity_functions import pairwise_cos_sim

        return pairwise_cos_sim(embeddings1, embeddings2)

    @property
    def mteb_model_meta(self) -> ModelMeta:
        """Facts that MTEB notes beside the scores of a model."""
        from mteb.models.model_meta import ModelMeta, ScoringFunction

        leaves = jax.tree.leaves(self.encoder.params)
        # Without languages: MTEB wants scripts too, which a list of training languages lacks.
        facts = {
            "name": self._name,
            "revision": self._revision,
            "n_parameters": sum(leaf.size for leaf in leaves),
            "memory_usage_mb": sum(leaf.nbytes for leaf in leaves) / 2**20,
            "max_tokens": self.encoder.max_length_tokens,
            "embed_dim": self.encoder.dim,
            "framework": ["JAX"],
            "similarity_fn_name": ScoringFunction.COSINE,
            "use_instructions": bool(self.encoder.prompts),
        }
        return ModelMeta.create_empty(facts)
