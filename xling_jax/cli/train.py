"""Prepares the data if needed, trains, evaluates while training, exports the encoder."""

from __future__ import annotations

import argparse
import functools
import logging
import os
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from ml_collections import ConfigDict

from xling_jax.cli import distributed, prepare_data
from xling_jax.cli.arguments import add_config_and_workdir, load_config
from xling_jax.cli.export import encoder_arguments, export_encoder, vocab_arguments
from xling_jax.cli.leaving import noting_signals
from xling_jax.cli.options import require_file
from xling_jax.cli.remote import Workdir, local_config, local_name
from xling_jax.corpora.held_out import held_out_difference
from xling_jax.corpora.prepare import is_made_with
from xling_jax.eval.during_training import (
    check_evaluation,
    check_metrics,
    goal_of,
    make_evaluators,
    read_evaluation,
)
from xling_jax.files.hashes import hash_file
from xling_jax.files.json_text import parse_json
from xling_jax.files.processes import Processes
from xling_jax.files.progress import Progress
from xling_jax.options import OptionError, wrong_use
from xling_jax.train.settings import COOCCURRENCE

if TYPE_CHECKING:
    from xling_jax.corpora.shards import PairTokens
    from xling_jax.encode.encoder import Encoder
    from xling_jax.eval.during_training import Measure
    from xling_jax.text.vocabularies import Vocabulary
    from xling_jax.train.callbacks import Callback

logger = logging.getLogger(__name__)

EXAMPLES = """\
examples:
  xling train --config ct_laser:small --workdir runs/ct_laser \\
      --config.data.corpora="('tsv:corpora/*.tsv.gz',)" --config.train.total_steps=2000
  xling train --config ct_laser --workdir runs/x --dry-run

The same command started again continues from the last checkpoint. SIGTERM and Ctrl-C save and
leave; a second Ctrl-C leaves at once.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_config_and_workdir(parser)
    distributed.add_arguments(parser)
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="print config, parameters, buckets, FLOPs and memory; touches no corpora",
    )


def run(args: argparse.Namespace) -> int:
    """Runs the command; 143 if SIGTERM ended it before it was done, 130 if Ctrl-C did."""
    config = load_config(args.config, args.config_overrides)
    if args.dry_run:
        from xling_jax.train.dry_run import describe

        with wrong_use():
            check(config)
            _check_metrics(config)
            _check_negatives(config)
            print(describe(config))
        return 0
    with distributed.joined(args) as processes:
        return train_from_config(config, args.workdir, processes)


def train_from_config(
    config: ConfigDict,
    workdir: str,
    processes: Processes | None = None,
    *,
    callbacks: Sequence[Callback] = (),
) -> int:
    """Prepares, trains and exports.

    Args:
        config: files it names may be at URLs.
        workdir: a directory, or `gs://BUCKET/PATH`, see `remote.Workdir`.
        processes: who trains together; None for this one alone.
        callbacks: called while training, see `train.callbacks`.

    Returns:
        0 when the last step is done and evaluated or `train.stop_metric` ended the run, 143 when
        SIGTERM did, 130 when Ctrl-C did.

    Raises:
        OSError: among others if another run is in the workdir, naming it.
    """
    from xling_jax.train.build import check_devices

    with wrong_use():
        check(config)
        check_devices(config)
    run = Workdir(workdir, processes)
    original = continued(config, run)
    config = local_config(original, "train", "evaluation")
    check_evaluation(config.evaluation, _evaluation_metrics(config))
    measures = read_evaluation(config.evaluation, config.languages, _evaluation_metrics(config))
    _check_goals(config)
    _check_beginning(config)
    with run.in_use():
        return _train(original, config, measures, run, callbacks)


def _train(
    original: ConfigDict,
    config: ConfigDict,
    measures: Mapping[str, Measure],
    run: Workdir,
    callbacks: Sequence[Callback],
) -> int:
    """Prepares, trains and exports in a workdir that no other run is in.

    Args:
        original: names the files of the run as the user did.
        config: names their copies on this machine.
        measures: what its evaluation section names, read.
        run: the workdir.
        callbacks: as given.
    """
    import jax

    with distributed.dying_of_sigterm():
        prepared = prepare_data.prepare_workdir(original, run)

    from xling_jax.corpora.prepare import prepared_vocab
    from xling_jax.train.build import VocabFacts
    from xling_jax.train.loop import Corpus, train

    if not os.environ.get("JAX_COMPILATION_CACHE_DIR"):
        cache = run.path.absolute() / "xla_cache"
        jax.config.update("jax_compilation_cache_dir", str(cache))
    text = {"lowercase": config.vocab.lowercase, "moses": config.vocab.moses}
    vocab = prepared_vocab(run.path, **text)
    started = time.time()
    # JAX notifies several processes of a SIGTERM to one of them, for `reached_preemption`.
    several = jax.distributed.is_initialized()
    with noting_signals(pass_on=several) as signal_received, Progress("train") as progress:
        result = train(
            original,
            str(run.path),
            Corpus(str(prepared.directory), prepared.fingerprint, VocabFacts.of(vocab)),
            evaluators=make_evaluators(measures, _encoder(config, vocab)),
            goal_of=functools.partial(goal_of, config.evaluation),
            begin_with=functools.partial(_begin_with, config, vocab, prepared.directory),
            should_stop=lambda: bool(signal_received()),
            on_step=progress,
            checkpoint_directory=run.checkpoints,
            publish=run.publish,
            callbacks=callbacks,
        )
    if not result.finished:
        logger.info(
            "stopped at step %d of %d, checkpoint saved; the same command continues",
            *(result.step, result.total_steps),
        )
        return 128 + (signal_received() or signal.SIGTERM)
    if jax.process_index() == 0:
        ended = {"ended_early": result.ended_early} if result.ended_early else {}
        export_encoder(
            config,
            vocab,
            result.encoder_params,
            run.path / "encoder",
            training={
                "steps": result.step,
                "exported_step": result.exported_step,
                "seconds_of_last_run": round(time.time() - started),
                **ended,
            },
            results=result.metrics,
            overwrite=True,
        )
        run.publish_encoder()
        logger.info("encoder of step %d in %s/encoder", result.exported_step, run.name)
    return 0


def check(config: ConfigDict) -> None:
    """Raises ValueError for a setting that is wrong whatever the data and devices."""
    from xling_jax.corpora.settings import PrepareSettings
    from xling_jax.train.build import check_config

    settings = prepare_data.prepare_settings(config)
    if not settings["corpora"]:  # a dry run needs none, and preparing refuses it
        settings["corpora"] = ("none",)
    PrepareSettings(**settings)
    check_config(config)


def _evaluation_metrics(config: ConfigDict) -> dict[str, str]:
    """The settings that name a metric of the `evaluation` section, and which."""
    from xling_jax.train.validation import is_validation

    metrics = {f"train.{name}": config.train[name] for name in ("best_metric", "stop_metric")}
    return {name: value for name, value in metrics.items() if value and not is_validation(value)}


def _check_goals(config: ConfigDict) -> None:
    """Raises OptionError unless it is known which values of these metrics are better."""
    from xling_jax.train.selection import find_goal

    for setting, metric in _evaluation_metrics(config).items():
        which = setting.removesuffix("_metric")
        given = config.train[f"{which.removeprefix('train.')}_goal"]
        with wrong_use():
            find_goal(which, metric, given, goal_of(config.evaluation, metric))


def _check_metrics(config: ConfigDict) -> None:
    """For a dry run: refuses metrics that nothing measures, as far as that is known here."""
    metrics, paths = _evaluation_metrics(config), sum(map(tuple, config.evaluation.values()), ())
    if not metrics:
        return
    check_metrics(config.evaluation, metrics)
    if all(Path(path).exists() for path in paths):
        read_evaluation(config.evaluation, config.languages, metrics)
    _check_goals(config)


def _check_beginning(config: ConfigDict) -> None:
    """Refuses word vectors or a model to begin with that are not there."""
    if config.train.word_vectors not in ("", COOCCURRENCE):
        require_file(config.train.word_vectors, "--config.train.word_vectors")
    if config.train.model_init:
        from xling_jax.encode.model_directory import find_model_directory

        with wrong_use("--config.train.model_init"):
            find_model_directory(config.train.model_init)
    if taught := prepare_data.prepare_settings(config)["teacher"]:
        _check_teacher(taught, config.objective.distillation.form)
    _check_negatives(config)


def _check_negatives(config: ConfigDict) -> None:
    """Refuses a file of hard negatives that is not there."""
    if path := config.data.negatives_file:
        require_file(local_name(path), "--config.data.negatives_file")


def _check_teacher(taught: Mapping[str, Any], form: str) -> None:
    """Refuses a teacher that is not there, or whose vectors the encoder cannot learn."""
    from xling_jax.encode.teacher import teacher_dim

    where = "--config.objective.distillation"
    with wrong_use(f"{where}.teacher"):
        dim = teacher_dim(local_name(taught["model"]), local_name(taught["texts"]))
    if dim < taught["width"] and form != "similarity":
        raise OptionError(
            f"{where}.teacher: {taught['model']} has {dim} dimensions, the encoder "
            f"{taught['width']}; make the encoder as narrow or set {where}.form=similarity"
        )


def continued(config: ConfigDict, workdir: Workdir) -> ConfigDict:
    """The config of a run that may have checkpoints: with the bucket lengths that it began with.

    Raises before anything of a run is replaced, if its checkpoints are of another config.
    """
    from xling_jax.train.identity import config_difference

    path = workdir.path / "config.json"
    if not path.is_file() or not workdir.has_checkpoints():
        return config
    saved = parse_json(path.read_bytes(), str(path))
    if not isinstance(saved, dict) or not isinstance(saved.get("vocab"), dict):
        raise ValueError(f"{path}: is not the config of a run; restore it, or remove the workdir")
    if not config.data.bucket_lengths:
        config = config.copy_and_resolve_references()
        with config.unlocked():
            config.data.bucket_lengths = tuple(saved["data"].get("bucket_lengths", ()))
    current = config.to_dict()
    found = config_difference(saved, current)
    # Checkpoints have the vocabulary's fingerprint, but preparing would have replaced it by then.
    for name, value in saved["vocab"].items():
        now = current["vocab"].get(name, value)
        if value != now:
            found = found or f"config.vocab.{name} is {value!r} in the checkpoint, {now!r} now"
    if found:
        raise ValueError(
            f"{workdir.name}: its checkpoints belong to another run: {found}; choose another "
            "--workdir or restore the setting"
        )
    manifest = workdir.manifest()
    settings = prepare_data.checked_settings(config)
    if not manifest:
        return config
    try:
        found = held_out_difference(manifest, settings, hash_file, local_name)
    except FileNotFoundError:
        # On another machine the data may be there without what they were made from.
        if not is_made_with(manifest, settings):
            raise
    if found:
        raise ValueError(f"{workdir.name}: {found}")
    return config


def _begin_with(config: ConfigDict, vocab: Vocabulary, directory: Path, params: Any) -> Any:
    """Fresh parameters with what the training text and the `train` section put into them."""
    if config.encoder.get("features"):
        from xling_jax.models.registry import build_encoder
        from xling_jax.train.warm_start import put_feature_keys

        family, arguments, _ = encoder_arguments(config)
        form = build_encoder(family, vocab_size=vocab.size, **arguments).form
        tokens = _pair_tokens(config, vocab, directory)
        params, share = put_feature_keys(params, form, tokens)
        logger.info("%.1f %% of the features in the text have a row", 100 * share)
    if config.train.word_vectors:
        from xling_jax.text.word_vectors import coverage
        from xling_jax.train.warm_start import put_word_vectors

        vectors, found = _word_vectors(config, vocab, directory)
        covered = coverage(vocab.pieces(), found)
        logger.info(
            "word vectors for %.1f %% of the pieces, %.1f %% of those that are words",
            *(100 * covered["pieces"], 100 * covered["words"]),
        )
        params = put_word_vectors(params, vectors, found)
    if config.train.model_init:
        import jax

        from xling_jax.encode.model_directory import find_model_directory, load_model
        from xling_jax.train.warm_start import put_encoder

        directory = find_model_directory(config.train.model_init)
        model = load_model(directory)
        if model.vocab.fingerprint != vocab.fingerprint:
            raise ValueError(
                f"train.model_init: {directory} has another vocabulary; give it to "
                "--config.vocab.model and prepare with it"
            )
        params, taken = put_encoder(params, model.params, vocab.size)
        count = len(jax.tree.leaves(params["encoder"]))
        logger.info("%d of the encoder's %d arrays are those of %s", taken, count, directory)
    return params


def _pair_tokens(config: ConfigDict, vocab: Vocabulary, directory: Path) -> list[PairTokens]:
    """The token shards of each pair of languages."""
    from xling_jax.corpora.shards import PairTokens, pair_name
    from xling_jax.text.languages import parse_pair

    names = sorted({pair_name(*parse_pair(pair, allow_same=True)) for pair in config.data.pairs})
    return [PairTokens(directory / name, vocab.size) for name in names]


def _word_vectors(
    config: ConfigDict, vocab: Vocabulary, directory: Path
) -> tuple[np.ndarray, np.ndarray]:
    """The vectors of `train.word_vectors`, and which pieces have one."""
    from xling_jax.text.vocab import Vocab

    width = config.encoder.get("embedding_width", config.encoder.width)
    if config.train.word_vectors != COOCCURRENCE:
        from xling_jax.text.word_vectors import read_word_vectors

        if not isinstance(vocab, Vocab):
            raise ValueError("train.word_vectors: needs a vocabulary of SentencePiece pieces")
        return read_word_vectors(
            config.train.word_vectors, vocab.pieces(), config.languages, width, vocab.lowercase
        )
    from jax.experimental.multihost_utils import broadcast_one_to_all

    from xling_jax.train.warm_start import cooccurrence_of_pairs

    logger.info("initial vectors from co-occurrence; two minutes for two million pairs")
    vectors = cooccurrence_of_pairs(_pair_tokens(config, vocab, directory), vocab.size, width)
    # The last bits depend on the machine; all processes must begin with the same.
    vectors = np.asarray(broadcast_one_to_all(vectors))
    return vectors, vectors.any(axis=1)


def _encoder(config: ConfigDict, vocab: Vocabulary) -> Encoder:
    """The encoder to measure while training, without parameters."""
    from xling_jax.encode.device_batches import DeviceBatches
    from xling_jax.encode.encoder import Encoder
    from xling_jax.models.registry import build_encoder

    family, arguments, limit = encoder_arguments(config)
    module = build_encoder(family, **vocab_arguments(family, vocab), **arguments)
    return Encoder(
        DeviceBatches(module, {}, vocab.pad_id),
        vocab,
        specials=module.specials,
        max_length_tokens=limit,
        languages=config.languages,
        fingerprint="",
        dim=module.dim,
    )
