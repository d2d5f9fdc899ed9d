"""The `train` section of a config, with durations in steps."""

import dataclasses

from xling_jax.registry import check_choice


@dataclasses.dataclass(frozen=True)
class TrainSettings:
    """Length of a run and its intervals.

    A config may also give durations in epochs, examples or percent, see `train.durations`.

    Attributes:
        total_steps: updates of the run.
        log_every_steps: updates between lines of metrics.
        evaluate_every_steps: updates between evaluations; the last step is always evaluated.
        checkpoint_every_steps: updates between checkpoints; the last step is always saved.
        keep_last: number of newest checkpoints to keep.
        keep_best: number of best checkpoints to keep.
        best_metric: metric that ranks checkpoints, higher is better, e.g. `europarl_dev/p_at_1`.
        export: export the encoder of the `last` or `best` checkpoint.
        max_length_tokens: longest input of the encoder in evaluations and after the export, special
            tokens included; longer text is cut. 0 for the limit of its family, 2,000 or the table
            of positions.
        model_init: model directory or workdir with the initial encoder of a new run.
        word_vectors: multiCCA or word2vec text file with initial embeddings of whole words.

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
    max_length_tokens: int = 0
    model_init: str = ""
    word_vectors: str = ""

    def __post_init__(self):
        intervals = ("log_every_steps", "evaluate_every_steps", "checkpoint_every_steps")
        for name in (*intervals, "keep_last"):
            if getattr(self, name) < 1:
                raise ValueError(f"train.{name}={getattr(self, name)} must be at least 1")
        if self.max_length_tokens and self.max_length_tokens < 3:
            raise ValueError(
                f"train.max_length_tokens={self.max_length_tokens} must be at least 3, or 0 for "
                "the limit of the encoder"
            )
        if self.keep_best < 0:
            raise ValueError(f"train.keep_best={self.keep_best} must be at least 0")
        check_choice("train.export", self.export, ("last", "best"))
        if self.export == "best" and not self.best_metric:
            raise ValueError("train.export='best' needs train.best_metric, e.g. 'dev/p_at_1'")
