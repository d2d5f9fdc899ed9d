"""Experiments: everything that a config describes, built and checked once.

`xling_jax.config.load` makes an experiment from a config file, `Experiment.recorded` from the
`config.json` of a run. Nothing behind these two reads a config. What depends on the vocabulary, the
data and the devices is added by `train.training.resolve`.

A default stands in the code that takes it; `complete` fills it in. The sections of a config are
constructor arguments:

    data        batches.DataOptions             optimizer   an optimizer of optax by `name`
    cleaning    corpora.cleaning.CleaningRules  schedule    a schedule by `name`
    vocab       corpora.options.VocabOptions    train       options.TrainOptions
    encoder     models.registry.ENCODERS        evaluation  task of `xling evaluate` -> its data
    decoder     models.registry.DECODERS        mesh        sharding.make_mesh
    objective   terms.TERMS                     head        models.dual.TokenDistributionHead

and `languages`, `seed`, `compute_dtype`, `dropout_generator`.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from xling_jax import options
from xling_jax.corpora.cleaning import CleaningRules
from xling_jax.corpora.options import Preparation, VocabOptions
from xling_jax.corpora.shards import pair_name
from xling_jax.devices import DTYPES
from xling_jax.files.untrusted import named
from xling_jax.models.dual import TokenDistributionHead
from xling_jax.models.layers import DROPOUT_GENERATORS
from xling_jax.models.registry import (
    DECODERS,
    ENCODERS,
    SUPPLIED,
    CrossLingualModel,
    build_model,
    vocab_layout,
)
from xling_jax.registry import check_choice
from xling_jax.sharding import make_mesh
from xling_jax.text.languages import parse_pair
from xling_jax.train.batches import DataOptions
from xling_jax.train.objective import ObjectiveOptions, parse_objective
from xling_jax.train.optimizer import find_optimizer, find_schedule, make_optimizer
from xling_jax.train.options import Epoch, TrainOptions, in_steps, resolve, run_length
from xling_jax.train.terms import TERMS
from xling_jax.train.terms.term import Term, all_reads
from xling_jax.train.terms.vectors import Distillation

_PLAIN = {"seed": 0, "compute_dtype": "auto", "dropout_generator": "threefry"}
SECTIONS = ("data", "cleaning", "vocab", "encoder", "decoder", "head", "objective", "optimizer")
SECTIONS += ("schedule", "train", "evaluation", "mesh")
# Sections that one class or function takes.
_TAKEN_BY: dict[str, Callable] = {
    "data": DataOptions,
    "cleaning": CleaningRules,
    "vocab": VocabOptions,
    "train": TrainOptions,
    "mesh": make_mesh,
}
_AS_GIVEN = ("optimizer", "schedule", "evaluation", "mesh", "seed", "compute_dtype")
_BEFORE_OPTIMIZER = ("clip_global_norm", "l2_penalty")
# Input lengths without a table of positions; 2,000 is that of the published T-LASER.
_LONGEST_INPUT = 2000

# A placeholder until the data are prepared.
ASSUMED_EPOCH = Epoch(steps=10_000.0, examples=1_000_000)


@dataclasses.dataclass(frozen=True)
class Experiment:
    """An experiment as its config describes it.

    Attributes:
        config: the complete config in plain values, as `config.json` records it.
        languages: codes; a language's id is its position.
        model: encoder, decoder and head, for the vocabulary size of the config.
        terms: of the objective, by name.
        schedule: arguments of `make_schedule`, durations in any unit.
        train: length of the run and its intervals; those that the config gives in other units
            than steps are of an assumed epoch until `training.resolve`.
        max_length_tokens: longest input of the encoder.
        evaluation: task -> paths of its data, to measure while training.
        compute_dtype: as given; `auto` is known once the device is.
    """

    config: Mapping[str, Any]
    languages: tuple[str, ...]
    preparation: Preparation
    data: DataOptions
    model: CrossLingualModel
    objective: ObjectiveOptions
    terms: Mapping[str, Term]
    optimizer: Mapping[str, Any]
    schedule: Mapping[str, Any]
    train: TrainOptions
    max_length_tokens: int
    evaluation: Mapping[str, tuple[str, ...]]
    mesh: Mapping[str, int]
    seed: int
    compute_dtype: str

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> "Experiment":
        """The experiment of a config; ValueError for what is wrong whatever data and devices."""
        config, objective, terms = complete(config)
        languages = tuple(config["languages"])
        plain = {name: config[name] for name in ("languages", "seed", "compute_dtype")}
        options.check(cls, plain, "config", partial=True)
        options.check_number(config["seed"], "seed", at_least=0)
        data = options.make(DataOptions, config["data"], "data")
        vocab = options.make(VocabOptions, config["vocab"], "vocab")
        cleaning = options.make(CleaningRules, config["cleaning"], "cleaning")
        options.check(make_mesh, config["mesh"], "mesh", devices=None)
        before = {name: config["optimizer"][name] for name in _BEFORE_OPTIMIZER}
        options.check(make_optimizer, before, "optimizer", partial=True)
        check_choice("compute_dtype", config["compute_dtype"], ("auto", *DTYPES))
        check_choice("dropout_generator", config["dropout_generator"], DROPOUT_GENERATORS)
        model = build_model(
            encoder=config["encoder"],
            decoder=config.get("decoder"),
            head=config.get("head"),
            vocab_size=vocab.size,
            num_languages=len(languages),
            dropout_generator=config["dropout_generator"],
        )
        reads, family = all_reads(terms.values()), config["encoder"]["family"]
        layout = vocab_layout(family, translates="decoder" in reads, masks="head" in reads)
        _check_named(find_optimizer, config["optimizer"], "optimizer", _BEFORE_OPTIMIZER)
        _check_named(find_schedule, config["schedule"], "schedule")
        train = _train_options(config["train"], ASSUMED_EPOCH)
        held_out = {path for paths in config["evaluation"].values() for path in paths}
        preparation = Preparation(
            languages=languages,
            corpora=data.corpora,
            exclude=data.exclude,
            evaluation=sorted(held_out) if data.hold_out_evaluation else (),
            validation_pairs=data.validation_pairs,
            max_broken_share=data.max_broken_share,
            pairs=data.pairs,
            cleaning=cleaning,
            vocab=vocab,
            layout=layout,
            seed=config["seed"],
            prompt=data.prompt,
            teacher=_teacher(terms.get("distillation"), data, model.encoder.dim),
        )
        return cls(
            config=config,
            languages=languages,
            preparation=preparation,
            data=data,
            model=model,
            objective=objective,
            terms=terms,
            train=train,
            max_length_tokens=_longest_input(config["encoder"], train.max_length_tokens),
            **{name: config[name] for name in _AS_GIVEN},
        )

    @classmethod
    def recorded(cls, config: Mapping[str, Any], path: str) -> "Experiment":
        """The experiment of a `config.json`; ValueError if its version had other options."""
        values = {name: value for name, value in config.items() if name != "version"}
        with named(f"{path}: xling_jax {config.get('version')} wrote it"):
            return cls.of(with_tuples(values))

    def replace(self, values: Mapping[str, Any]) -> "Experiment":
        """The same with other values, such as `{"data.corpora": ("tsv:mine.tsv",)}`."""
        config = _copy(self.config)
        for key, value in values.items():
            *path, last = key.split(".")
            section = config
            for name in path:
                section = section.setdefault(name, {})
            section[last] = value
        return Experiment.of(config)

    def train_options(self, epoch: Epoch) -> TrainOptions:
        """`train` with durations in steps, given the length of a pass over the data."""
        return _train_options(self.config["train"], epoch)

    @property
    def reads(self) -> frozenset[str]:
        """Inputs that the terms need, see `terms.term.Term`."""
        return all_reads(self.terms.values())

    @property
    def family(self) -> str:
        """Of the encoder."""
        return self.config["encoder"]["family"]

    @property
    def encoder_arguments(self) -> dict[str, Any]:
        """Constructor arguments of the encoder that determine a vector."""
        skipped = {"family", *ENCODERS[self.family].training_only}
        return {k: v for k, v in self.config["encoder"].items() if k not in skipped}


def complete(config: Mapping[str, Any]) -> tuple[dict[str, Any], ObjectiveOptions, dict[str, Term]]:
    """A config with the defaults of all that it uses, and its objective.

    ValueError for a section, family or term that does not exist, a section that nothing reads, or
    one that is missing.
    """
    config = _copy(config)
    for name in config:
        check_choice("config section", name, (*_PLAIN, "languages", *SECTIONS))
    for name in ("languages", "encoder", "objective", "optimizer", "schedule"):
        if not config.get(name):
            way_out = "; without it, name a model in train.model_init" if name == "encoder" else ""
            raise ValueError(f"config.{name} is missing{way_out}")
    config = _PLAIN | config
    for name, target in _TAKEN_BY.items():
        config[name] = _filled(target, config.get(name, {}))
    config["evaluation"] = {
        task: _paths(f"evaluation.{task}", given)
        for task, given in config.get("evaluation", {}).items()
    }
    objective, terms = parse_objective(config["objective"])
    config["objective"] = dataclasses.asdict(objective) | {
        name: _filled(TERMS[name], config["objective"][name]) for name in terms
    }
    reads = all_reads(terms.values())
    for name in ("decoder", "head"):
        if name in config and name not in reads:
            raise ValueError(f"config.{name}: no term of the objective reads it; remove it")
    if "decoder" in reads and "decoder" not in config:
        raise ValueError("config.decoder is missing; a term of the objective reads it")
    for name, table in (("encoder", ENCODERS), ("decoder", DECODERS)):
        if name in config:
            if "family" not in config[name]:
                raise ValueError(f"config.{name}.family is missing; known are {', '.join(table)}")
            if given := sorted({*SUPPLIED} & config[name].keys()):
                raise ValueError(f"config.{name}.{given[0]} follows from the rest; remove it")
            config[name] = _filled(table[config[name]["family"]], config[name])
    if "head" in reads:
        config["head"] = _filled(TokenDistributionHead, config.get("head", {}))
    for name in ("optimizer", "schedule"):
        if "name" not in config[name]:
            raise ValueError(f"config.{name}.name is missing")
    defaults = options.defaults(make_optimizer)
    config["optimizer"] = {n: defaults[n] for n in _BEFORE_OPTIMIZER} | config["optimizer"]
    return _copy(config), objective, terms


def _copy(value: Any) -> Any:
    """A copy of nested mappings, in the order of their keys, which is that of the terms' sum."""
    if isinstance(value, Mapping):
        return {name: _copy(value[name]) for name in sorted(value)}
    return value


def with_tuples(value: Any) -> Any:
    """JSON's lists as the tuples of a config."""
    if isinstance(value, Mapping):
        return {name: with_tuples(item) for name, item in value.items()}
    return tuple(map(with_tuples, value)) if isinstance(value, list) else value


def _filled(target: Callable, given: Mapping[str, Any]) -> dict[str, Any]:
    """A section with the defaults of what takes it."""
    in_any_unit = {in_steps(name) for name in given}
    supplied = ("devices",) if target is make_mesh else SUPPLIED
    return dict(given) | {
        name: default
        for name, default in options.defaults(target, supplied).items()
        if name not in in_any_unit and default is not options.REQUIRED
    }


def _paths(where: str, given: Any) -> tuple[str, ...]:
    paths = (given,) if isinstance(given, str) else given
    if not isinstance(paths, (tuple, list)) or not all(p and isinstance(p, str) for p in paths):
        raise ValueError(f"{where}={given!r} must be a path or several, () for none")
    return tuple(paths)


def _train_options(section: Mapping[str, Any], epoch: Epoch) -> TrainOptions:
    total = run_length(section, epoch)
    resolved = resolve(section, "train", epoch, total) | {"total_steps": total}
    return options.make(TrainOptions, resolved, "train")


def _longest_input(encoder: Mapping[str, Any], given: int) -> int:
    positions = encoder.get("max_length_tokens", 0) if encoder.get("layers") else 0
    if positions and given > positions:
        raise ValueError(
            f"train.max_length_tokens={given} must be at most {positions}, the positions of the "
            "encoder"
        )
    return given or positions or _LONGEST_INPUT


def _check_named(
    find: Callable, section: Mapping[str, Any], where: str, besides: Sequence[str] = ()
) -> None:
    """Checks the arguments of an optimizer or schedule, but for those that follow from the run."""
    given = resolve(section, where, ASSUMED_EPOCH, total_steps=1)
    given = {name: value for name, value in given.items() if name not in ("name", *besides)}
    options.check(find(section["name"]), given, where, partial=True)


def _teacher(term: Distillation | None, data: DataOptions, width: int) -> dict[str, Any]:
    """The vectors of a teacher that training needs, for `Preparation`; empty without one."""
    if term is None:
        return {}
    if not term.teacher:
        raise ValueError(
            "objective.distillation.teacher is missing; name a model directory, or mini for the "
            "packaged encoder"
        )
    pairs = [parse_pair(pair, allow_same=True) for pair in data.pairs]
    for source, target in sorted(pairs) if data.both_directions and term.fits == "source" else ():
        if source != target and (target, source) in pairs:
            raise ValueError(
                "objective.distillation.fits='source' excludes data.both_directions: a "
                f"batch of {source}-{target} and {target}-{source} has two sources; set "
                "fits='own', or leave both_directions out"
            )
    languages: dict[str, set[str]] = {}
    for source, target in pairs:
        sides = {source, target} if "target_teacher" in term.reads else {source}
        languages.setdefault(pair_name(source, target), set()).update(sides)
    sides = {pair: sorted(sides) for pair, sides in languages.items()}
    named = {"model": term.teacher, "texts": term.teacher_texts}
    return {**named, "width": width, "languages": sides}
