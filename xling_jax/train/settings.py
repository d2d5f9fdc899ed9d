"""The `train` section of a config, with durations in steps."""

import dataclasses

from xling_jax.registry import check_choice


@dataclasses.dataclass(frozen=True)
class TrainSettings:
    """How long a run is, and what happens when.

    Durations are in steps here; a config may give them in epochs, examples or percent too, see
    `train.durations`.

    Attributes:
        total_steps: updates of the run.
        log_every_steps: between lines of metrics.
        evaluate_every_steps: between evaluations; the last step is always evaluated.
        checkpoint_every_steps: between checkpoints; the last step is always saved.
        keep_last: newest checkpoints kept.
        keep_best: checkpoints kept for their metric.
        best_metric: what ranks checkpoints, higher is better, e.g. `europarl_dev/p_at_1`.
        export: the `last` checkpoint's encoder, or the `best` one's.
        model_init: model directory or workdir whose encoder a new run begins with.
        word_vectors: multiCCA or word2vec text file, the first embeddings of whole words.

    Raises:
        ValueError: for a count below 1, or `export="best"` without a metric.
    """

    total_steps: int = 0
    log_every_steps: int = 50
    evaluate_every_steps: int = 1000
    checkpoint_every_steps: int = 1000
    keep_last: int = 2
    keep_best: int = 1
    best_metric: str = ""
    export: str = "last"
    model_init: str = ""
    word_vectors: str = ""

    def __post_init__(self):
        for name in ("log_every_steps", "evaluate_every_steps", "checkpoint_every_steps"):
            if getattr(self, name) < 1:
                raise ValueError(f"train.{name}={getattr(self, name)} must be at least 1")
        if self.keep_last < 1:
            raise ValueError(f"train.keep_last={self.keep_last} must be at least 1")
        check_choice("train.export", self.export, ("last", "best"))
        if self.export == "best" and not self.best_metric:
            raise ValueError("train.export='best' needs train.best_metric, e.g. 'dev/p_at_1'")
