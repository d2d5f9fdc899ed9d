"""The papers' tables: runs that are trained and evaluated once, and tasks that read their cells."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import io
import json
import logging
import re
import shlex
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xling_jax.config import load
from xling_jax.files.hashes import fingerprint
from xling_jax.files.whole import read_json, whole_directory
from xling_jax.options import OptionError
from xling_jax.papers.tables import Cells, Key, Part, Published, Run, Table

if TYPE_CHECKING:
    from xling_jax.train.experiment import Experiment

_logger = logging.getLogger(__name__)

# On top of the configs' `:smoke`: one shape, two checkpoints.
_SMOKE = {"data.bucket_lengths": (40,), "train.total_steps": 4, "train.keep_last": 4}
_SMOKE |= {"train.evaluate_every_steps": 2, "train.checkpoint_every_steps": 2}


@dataclass
class Reproduction:
    """A workdir of runs, and what they read.

    A run lies in a directory named after its resolved config, so that tables share it, and nothing
    is done twice; results lie with the options that they depend on in their name.

    Attributes:
        workdir: of all runs.
        data: directory of text, see docs/how-to/reproduce.md; None for none.
        scale: one of `tables.SCALES`.
        encoders: directory of published encoders; None for none.
        seed: of training.
        dry_run: print commands, run none.
    """

    workdir: Path
    data: Path | None
    scale: str
    encoders: Path | None = None
    seed: int = 0
    dry_run: bool = False
    _printed: set[str] = field(default_factory=set)
    _known: dict[str, tuple[list[str], Experiment]] = field(default_factory=dict)

    def find(self, *patterns: str) -> list[Path]:
        """The files in `--data` of the first pattern that fits."""
        found = (sorted(self.data.glob(p)) if self.data else [] for p in patterns)
        return next(filter(None, found), [])

    def experiment(self, run: Run) -> tuple[list[str], Experiment]:
        """The words of `xling train` for a run, and what they resolve to."""
        if repr(run) not in self._known:
            config = run.config
            if self.scale != "paper":
                config += f"{',' if ':' in config else ':'}{self.scale}"
            settings = self._text(run) | {"small": run.small, "smoke": _SMOKE}.get(self.scale, {})
            settings |= {
                k: v[self.scale] if isinstance(v, dict) else v for k, v in run.settings.items()
            }
            settings |= {"seed": self.seed} if self.seed else {}
            overrides = overrides_of(settings)
            experiment = load(config, overrides)
            self._known[repr(run)] = ["--config", config, *overrides], experiment
        return self._known[repr(run)]

    def _text(self, run: Run) -> dict[str, Any]:
        """What a run is trained on, and what it must not see."""
        settings = dict(run.paper) if self.scale == "paper" else {}
        if self.data and self.scale != "paper":
            files = sorted({path for p in run.text for path in self.find(f"parallel/{p}.tsv*")})
            files = files or self.find("parallel/*.tsv*")
            cut = lambda path: f"[:{int(run.share * _num_rows(path))}]" if run.share < 1 else ""
            settings["data.corpora"] = tuple(f"tsv:{path}{cut(path)}" for path in files)
        if held := self.find("retrieval/*.tsv*"):
            settings["data.exclude"] = tuple(map(str, held))
        return settings

    def model(self, encoder: Run | Published) -> Path | None:
        """The workdir or model directory of an encoder, trained or converted; None if missing."""
        if isinstance(encoder, Run):
            return self.train(encoder)
        if source := self.published(encoder):
            output = self.workdir / f"{encoder.name}-{_digest(source, *encoder.convert)}"
            if "laser" in encoder.convert:
                source = next(iter(sorted(source.glob("*.pt"))), source)
            self.xling("convert", *encoder.convert, source, "--output", output, done=output)
            return output
        return self.train(encoder.stand_in) if encoder.stand_in and self.scale != "paper" else None

    def published(self, encoder: Published) -> Path | None:
        """The directory of a published encoder in `--encoders`, if it is there."""
        place = self.encoders / encoder.name if self.encoders else None
        return place if place and place.is_dir() else None

    def train(self, run: Run) -> Path:
        """The workdir of a run, which is trained first unless it has been."""
        words, experiment = self.experiment(run)
        name = re.sub(r"[^A-Za-z0-9+]+", "-", run.config)
        workdir = self.workdir / f"{name}-{fingerprint(experiment.config)[:8]}"
        if not self.dry_run and not workdir.exists():
            self._share_text(experiment, workdir)
        self.xling("train", *words, "--workdir", workdir, done=workdir / "encoder")
        return workdir

    def _share_text(self, experiment: Experiment, workdir: Path) -> None:
        """Begins with the prepared text of another run, if there is one made alike."""
        from xling_jax.corpora.prepared import is_made_with

        for path in sorted(self.workdir.glob("[!.]*/data/manifest.json")):
            if is_made_with(read_json(path), experiment.preparation):
                with whole_directory(workdir) as partial:
                    for name in ("data", "vocab"):
                        shutil.copytree(path.parents[1] / name, partial / name)
                return

    def evaluate(
        self,
        part: Part,
        task: str,
        data: Sequence[object],
        *options: object,
        pictures: bool = False,
    ) -> tuple[dict[str, Any], Path]:
        """The results.json of `xling evaluate`, {} if it cannot be measured, and its directory."""
        model = self.model(part.encoder)
        if not data or model is None:
            return {}, Path()
        words = [task, "--data", *data]
        for name, value in part.options.items():
            words += [f"--{name}"] if value is True else [f"--{name}", value]
        words += options
        if part.languages:
            words += ["--languages", ",".join(part.languages)]
        if task != "probing":
            words.append("--pictures" if pictures else "--no-pictures")
        output = model / "results" / f"{task}-{_digest(*words)}"
        done = output / ("checkpoints.json" if "--checkpoint" in words else "results.json")
        self.xling("evaluate", *words, "--model", model, "--output", output, done=done)
        return (read_json(done) or {}), output

    def xling(self, *words: object, done: Path) -> None:
        """Runs a command unless its result exists; ends with its status if that is not 0."""
        from xling_jax.cli.main import main

        command = shlex.join(map(str, words))
        if self.dry_run:
            if command not in self._printed:
                print(f"xling {command}")
                self._printed.add(command)
            return
        if done.exists():
            return
        _logger.info("xling %s", command if len(command) < 200 else f"{command[:200]}...")
        log = logging.getLogger("xling_jax")
        before = log.level
        if self.scale == "smoke":
            log.setLevel(logging.ERROR)
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                status = main([*map(str, words)])
        finally:
            log.setLevel(before)
        if status:
            raise SystemExit(status)


def overrides_of(settings: Mapping[str, Any]) -> list[str]:
    """Words that change keys of a config."""
    return [f"--config.{key}={value}" for key, value in settings.items()]


def _digest(*words: object) -> str:
    return fingerprint([*map(str, words)])[:8]


@functools.cache
def _num_rows(path: Path) -> int:
    from xling_jax.files.lines import iterate_lines

    return sum(1 for _ in iterate_lines(path)) - 1


# Data of the papers -> where in `--data` the `paper` scale reads it, what other scales take where
# that is missing (the first that is there), and where it is from.
DATA = {
    "mldoc": (
        ["classification/mldoc"],
        ["classification/sib200", "classification/*"],
        "MLDoc needs Reuters RCV1 and RCV2, which NIST licenses "
        "(https://trec.nist.gov/data/reuters/reuters.html); make it with `python -m "
        "xling_jax.eval.mldoc`",
    ),
    "senteval": (
        ["probing"],
        [],
        "SentEval's data: https://github.com/facebookresearch/SentEval, data/downstream",
    ),
    "europarl-5k": (
        ["retrieval/europarl_5k.tsv.gz"],
        ["retrieval/europarl.dev.tsv.gz", "retrieval/*"],
        "xling reproduce europarl-5k --output DIR/retrieval/europarl_5k.tsv.gz makes it",
    ),
    "wmt16": (
        ["docs/wmt16.en.jsonl.gz", "docs/wmt16.fr.jsonl.gz", "docs/wmt16.pairs.tsv"],
        ["docs/*.dev.jsonl*", "docs/*.jsonl*"],
        "pages and pairs of https://www.statmt.org/wmt16/bilingual-task.html; the config "
        "lawdr_wmt16 says how to make it",
    ),
    "wmt19": (
        ["docs/wmt19.jsonl.gz"],
        ["docs/*.dev.jsonl*", "docs/*.jsonl*"],
        "http://data.statmt.org/news-commentary/v14/documents.tgz; the config lawdr_wmt19 says how "
        "to make it",
    ),
}
XSR = (200_000, 2_000)
_XSR_SMOKE = (150, 50)


@dataclass
class Measured:
    """Cells, notes on some of them, pictures, and facts about the data."""

    cells: Cells = field(default_factory=dict)
    notes: dict[Key, str] = field(default_factory=dict)
    pictures: list[Path] = field(default_factory=list)
    facts: list[str] = field(default_factory=list)

    def update(self, other: Measured) -> None:
        """Adds what another part has."""
        self.cells |= other.cells
        self.notes |= other.notes
        self.pictures += other.pictures
        self.facts += [fact for fact in other.facts if fact not in self.facts]

    def add_matrix(self, measure: str, matrix: Mapping[str, Mapping[str, float | None]]) -> None:
        """Adds the shares of a matrix of results.json, source -> target, in percent."""
        for source, row in matrix.items():
            known = {target: 100 * value for target, value in row.items() if value is not None}
            self.cells |= {Key(measure, source, target): v for target, v in known.items()}


def _files(self: Reproduction, name: str) -> list[Path]:
    """The files of data of the papers, or below `paper` one in their place."""
    paths, instead, _ = DATA[name]
    files = [self.data / path for path in paths] if self.data else []
    is_there = bool(files) and all(path.exists() for path in files)
    return files if is_there else self.find(*instead)[:1]


def _matrices(results: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
    return (results.get("matrices") or {}).items()


def _classification(self: Reproduction, part: Part) -> Measured:
    from xling_jax.eval.classification_data import list_languages

    folder = _files(self, "mldoc")
    codes = list_languages(folder[0]) if folder else []
    options = dict(part.options)
    if self.scale in ("smoke", "small"):  # their encoders read less
        options.pop("max-tokens", None)
    languages = tuple(code for code in part.languages if code in codes)
    part = dataclasses.replace(part, languages=languages, options=options)
    one_seed = options["classifiers"] in ("mlp", "linear") and self.scale == "smoke"
    words = ["--seeds", "1"] if one_seed else []
    found, epoch = Measured(), None
    if part.checkpoint in ("dev", "best", "half"):
        results, epoch = _chosen(self, part, folder, words)
    else:
        results, _ = self.evaluate(part, "classification", folder, *words)
    for name, matrix in _matrices(results):
        kind = matrix.get("oracle" if part.checkpoint == "oracle" else "accuracy") or {}
        renamed = {"others" if s == "the others" else s: row for s, row in kind.items()}
        found.add_matrix(part.measure, renamed)
        size = min(matrix["num_test"].values())
        found.facts.append(f"{name}: tested on {matrix['test_split']}, at least {size} texts")
    if epoch is not None:
        found.cells[Key("epoch")] = epoch
    return found


def _chosen(
    self: Reproduction, part: Part, folder: Sequence[Path], words: Sequence[str]
) -> tuple[dict[str, Any], float | None]:
    """Results of the checkpoint that is chosen on a split, and its epoch if that is known."""
    has_test = bool(folder) and any(folder[0].glob("test.*"))
    split = "test" if part.checkpoint == "best" and has_test else "dev"
    every = [*words, "--checkpoint", "all", "--metric", "cross", "--split"]
    scores, place = self.evaluate(part, "classification", folder, *every, split)
    if not scores:
        return {}, None
    steps, chosen = sorted(map(int, scores["scores"])), scores["best"]
    experiment = self.experiment(part.encoder)[1]
    if part.checkpoint == "half":
        last = experiment.train.total_steps or steps[-1]
        chosen = min(steps, key=lambda step: abs(step - last / 2))
    elif has_test:
        _, place = self.evaluate(part, "classification", folder, *every, "test")
    epochs = experiment.config["train"].get("total_epochs")
    return read_json(place / str(chosen) / "results.json"), epochs and epochs * chosen / steps[-1]


def _retrieval(self: Reproduction, part: Part) -> Measured:
    """P@1 of all directions, and among how many candidates."""
    results, _ = self.evaluate(part, "retrieval", _files(self, "europarl-5k"))
    found = Measured()
    for name, matrix in _matrices(results):
        found.add_matrix(part.measure, matrix["p_at_1"])
        counts = {v for row in matrix["num_candidates"].values() for v in row.values() if v}
        found.facts.append(f"{name}: {', '.join(f'{n:,}' for n in sorted(counts))} candidates")
    return found


def _xsr(self: Reproduction, part: Part) -> Measured:
    """2,000 queries among 200,000 sentences of Europarl, or as many as there are."""
    first, second = sorted(part.languages)
    if self.scale == "paper":
        data = f"tfds:europarl_v7/{first}-{second}:train[:800000]"
    elif self.find("parallel/europarl*.tsv*", "parallel/*.tsv*"):
        data = f"tsv:{self.data}/parallel/europarl*.tsv*"
    else:
        return Measured()
    part = dataclasses.replace(part, languages=(first, second))
    drawn = ",".join(map(str, _XSR_SMOKE if self.scale == "smoke" else XSR))
    results, _ = self.evaluate(part, "retrieval", [data], "--xsr", drawn)
    found = Measured()
    for _, matrix in _matrices(results):
        found.add_matrix(part.measure, matrix["p_at_1"])
        for key in found.cells:
            count = matrix["num_candidates"][key.source][key.target]
            if count != XSR[0]:
                found.notes[key] = f"of {count:,}"
    return found


def _probing(self: Reproduction, part: Part) -> Measured:
    names = {"SST2": "SST"} | {name: name for name in ("MR", "CR", "MPQA", "SUBJ", "TREC")}
    words = ["--classifier", "mlp", "--tasks", ",".join(names)]
    results, _ = self.evaluate(part, "probing", _files(self, "senteval"), *words)
    metrics, found = results.get("metrics") or {}, Measured()
    shown = {to: metrics.get(f"{name}/accuracy") for name, to in names.items()}
    found.add_matrix(part.measure, {"en": shown})
    return found


def _ranked(self: Reproduction, part: Part) -> Part:
    """Of a narrower encoder that stands in, removes at most a quarter of the dimensions."""
    stand_in = getattr(part.encoder, "stand_in", None)
    if not stand_in or self.published(part.encoder) or self.scale == "paper" or self.dry_run:
        return part
    width = self.experiment(stand_in)[1].config["encoder"]["width"]
    rank = min(part.options["debias"], width // 4)
    return dataclasses.replace(part, options=part.options | {"debias": rank})


def _alignment(self: Reproduction, part: Part) -> Measured:
    """The eight cells of LAWDR, or a baseline of whole documents."""
    name, _, baseline = part.task.partition("-")
    files = _files(self, name)
    options = ["--languages", "en,fr"] if name == "wmt16" else []
    options += ["--gold", files[2], "--domain", "domain"] if files[2:] else []
    results, _ = self.evaluate(_ranked(self, part), "alignment", files[:2], *options)
    found = Measured()
    for data, matrix in _matrices(results):
        for cell, pairs in matrix["cells"].items():
            vectors, _, score = cell.rpartition("-")
            counts = [[p[name] for p in pairs.values()] for name in ("num_correct", "num_gold")]
            recall = 100 * sum(counts[0]) / sum(counts[1])
            if baseline and (vectors, score) == (baseline, "margin"):
                found.cells[Key(part.measure, target="whole")] = recall
            elif not baseline and vectors.partition("-")[0] in ("biased", "debiased"):
                found.cells[Key(part.measure, target=cell)] = recall
        found.facts.append(f"documents: {data}")
    return found


def _language(self: Reproduction, part: Part) -> Measured:
    words = ["--languages", "en,fr"]
    words += ["--site", "eu2007.de"] if self.scale == "paper" else []
    files = _files(self, "wmt16")[:2]
    results, place = self.evaluate(_ranked(self, part), "language", files, *words, pictures=True)
    found = Measured()
    for metric, value in (results.get("metrics") or {}).items():
        found.cells[Key(part.measure, target=metric.rpartition("/")[2])] = 100 * value
    for data, scores in _matrices(results):
        found.facts.append(f"{data}: {scores['rank']} components")
        found.pictures = sorted(place.glob("*.pca.png"))
    return found


def _document_counts(self: Reproduction, part: Part) -> Measured:
    from xling_jax.documents.records import read_documents

    if self.dry_run:
        return Measured()
    files = _files(self, part.task.removeprefix("documents-"))
    found = (document for file in files[:2] for document in read_documents(file))
    kept = [one for one in found if not part.languages or one.language in part.languages]
    if not kept:
        return Measured()
    words = sum(len(sentence.split()) for one in kept for sentence in one.sentences)
    return Measured({Key("documents"): len(kept), Key("average length"): words / len(kept)})


def _size(self: Reproduction, part: Part) -> Measured:
    """Sizes of the published config, named as in both papers."""
    from xling_jax.train.dry_run import published_count

    experiment = load(part.encoder.config, overrides_of(part.encoder.settings))
    encoder, decoder = (experiment.config.get(side) or {} for side in ("encoder", "decoder"))
    recurrent = encoder["family"] == "laser"
    depth = decoder.get("layers", 1) if decoder else None
    known = {
        "d_h": f"{encoder['width'] // 2}x2" if recurrent else encoder["width"],
        "d_z": decoder.get("width"),
        "r": encoder.get("heads"),
        "attention_heads": encoder.get("heads"),
        "d_fc": encoder.get("ffn_width"),
        "num_encoder_layers": encoder["layers"],
        "encoder_layers": encoder["layers"],
        "num_decoder_layers": depth,
        "decoder_layers": depth,
        "architecture": "BiLSTM" if recurrent else "Transformer",
        "vocabulary": experiment.preparation.vocab.size,
        "parameters": published_count(experiment),
    }
    return Measured({Key(n): v for n, v in known.items() if n in part.options and v is not None})


def _on_model(
    measure: Callable[[Reproduction, Part, Path], Measured],
) -> Callable[[Reproduction, Part], Measured]:
    """A task that reads a trained model itself, without a command that a dry run could print."""

    def measured(self: Reproduction, part: Part) -> Measured:
        model = self.model(part.encoder)
        return Measured() if self.dry_run else measure(self, part, model)

    return measured


def _neighbors(self: Reproduction, part: Part, model: Path) -> Measured:
    """The nearest three sentences of each language, without the translation itself."""
    import xling_jax
    from xling_jax.eval.retrieval_data import load_retrieval_data
    from xling_jax.papers.tables import published

    if not (files := _files(self, "europarl-5k")):
        return Measured()
    (query,) = [v for k, v in published("yu-3")["similarity loss"].items() if k.measure == "query"]
    texts = load_retrieval_data(files[0], part.languages).parts[0].texts
    row = texts["en"].index(query) if query in texts["en"] else 0
    encoder = xling_jax.load(model)
    found = Measured({Key("query", "en", "query"): texts["en"][row]})
    for code, column in texts.items():
        hits = xling_jax.search(texts["en"][row], column, encoder, k=4)
        others = [hit.text for hit in hits if hit.position != row]
        for place, text in enumerate(others[:3], 1):
            found.cells[Key(code, "en", str(place))] = text
    return found


def _classes(self: Reproduction, part: Part, model: Path) -> Measured:
    """t-SNE of the German test documents by class."""
    import numpy as np

    import xling_jax
    from xling_jax.encode.documents import document_encoder
    from xling_jax.eval.classification_data import load_classification_data
    from xling_jax.eval.results import Projection
    from xling_jax.report.pictures import draw_all

    if not (folder := _files(self, "mldoc")):
        return Measured()
    data = load_classification_data(folder[0], ["de"])
    part_of = data.splits[data.test_split]["de"]
    vectors = document_encoder(xling_jax.load(model).encode, "sentences")(part_of.texts)
    labels = np.array(part_of.labels)
    count = min(int((labels == name).sum()) for name in data.labels)
    groups = {name: vectors[labels == name][:count] for name in data.labels}
    place = model / "results"
    place.mkdir(exist_ok=True)
    draw_all([Projection("classes", groups, "German test documents by class")], place)
    return Measured(pictures=[place / "classes.tsne.png"], facts=[f"classification: {data.name}"])


def _speed(self: Reproduction, part: Part, model: Path) -> Measured:
    """Tokens per second, or minutes for 10,000 updates, as training logged them last."""
    lines = map(json.loads, (model / "metrics.jsonl").read_text("utf-8").splitlines())
    last = [line for line in lines if "train/steps_per_second" in line][-1]
    if part.task == "speed":
        return Measured({Key(part.measure): last["train/tokens_per_second"]})
    minutes = 10_000 / last["train/steps_per_second"] / 60
    return Measured({Key("minutes per 10,000 updates"): minutes})


def _memory(self: Reproduction, part: Part) -> Measured:
    from xling_jax.train.dry_run import planned_memory

    _, experiment = self.experiment(part.encoder)
    if self.dry_run:
        return Measured()
    return Measured({Key("memory, MB"): sum(planned_memory(experiment).values()) / 2**20})


def _pairs(self: Reproduction, part: Part, model: Path) -> Measured:
    """Rows before and after the filter of letters; other filters come after."""
    corpora = read_json(model / "data/counts.json")["corpora"].values()
    pairs = [counts for corpus in corpora for counts in corpus.values()]
    value = sum(counts["read"] for counts in pairs)
    if part.task == "filtered-pairs":
        value -= sum(counts["wrong_letters"] for counts in pairs)
    return Measured({Key(part.measure): value})


# Name -> how it is measured, and what data of the papers that needs.
TASKS: dict[str, tuple[Callable[[Reproduction, Part], Measured], str]] = {
    "classification": (_classification, "mldoc"),
    "classes": (_on_model(_classes), "mldoc"),
    "retrieval": (_retrieval, "europarl-5k"),
    "neighbors": (_on_model(_neighbors), "europarl-5k"),
    "xsr": (_xsr, "Europarl v7"),
    "probing": (_probing, "senteval"),
    "language": (_language, "wmt16"),
    **dict.fromkeys(("wmt16", "wmt16-first512", "wmt16-document"), (_alignment, "wmt16")),
    **dict.fromkeys(("wmt19", "wmt19-first512", "wmt19-document"), (_alignment, "wmt19")),
    "documents-wmt16": (_document_counts, "wmt16"),
    "documents-wmt19": (_document_counts, "wmt19"),
    "size": (_size, ""),
    **dict.fromkeys(("speed", "update-time"), (_on_model(_speed), "")),
    "memory": (_memory, ""),
    **dict.fromkeys(("raw-pairs", "filtered-pairs"), (_on_model(_pairs), "")),
}


def needed(table: Table) -> list[str]:
    """The data, and encoders, that the rows of a table need at `paper`."""
    parts = [part for row in table.rows for part in row.parts]
    names = dict.fromkeys(TASKS[part.task][1] for part in parts)
    stand_ins = [p for p in parts if isinstance(p.encoder, Published) and p.encoder.stand_in]
    return [*filter(None, names), *(["encoders"] if stand_ins else [])]


def missing_data(data: Path | None, names: Sequence[str]) -> None:
    """Raises OptionError, in one line, for data of the papers that `--data` lacks."""
    for name in names:
        paths, _, origin = DATA.get(name, ([], [], ""))
        for path in paths:
            if not data or not (data / path).exists():
                place = (data or Path("DIR")) / path
                raise OptionError(f"--scale paper: needs {place}; {origin}")
