"""The runs of the papers' tables, trained and evaluated once."""

import contextlib
import functools
import io
import logging
import re
import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from xling_jax.cli.main import main
from xling_jax.config import load
from xling_jax.corpora.specs import open_corpus
from xling_jax.corpora.stages import is_made_with
from xling_jax.files.hashes import fingerprint
from xling_jax.files.lines import iterate_lines
from xling_jax.files.whole import read_json, rename_directory, temporary_directory
from xling_jax.options import OptionError
from xling_jax.papers.tables import Part, Published, Run
from xling_jax.train.experiment import Experiment

_logger = logging.getLogger(__name__)
languages_of = functools.cache(lambda path: {*open_corpus(f"tsv:{path}").languages()})

# On top of the configs' `:smoke`: one shape, two checkpoints.
_SMOKE = {"data.bucket_lengths": (40,), "train.total_steps": 4, "train.keep_last": 4}
_SMOKE |= {"train.evaluate_every_steps": 2, "train.checkpoint_every_steps": 2}


@dataclass
class Reproduction:
    """A workdir of runs, and what they read.

    A run lies in a directory named after its resolved config, so that tables share it, and nothing
    is done twice; results lie with the options that they depend on in their name.

    Attributes:
        data: directory of text, see docs/how-to/reproduce.md; None for none.
        scale: one of `tables.SCALES`.
        encoders: directory of published encoders; None for none.
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

    def parallel(self, names: Sequence[str], pairs: Sequence[str]) -> list[Path]:
        """The files of `parallel/` with both languages of any pair."""
        files = {path for name in names for path in self.find(f"parallel/{name}.tsv*")}
        return [f for f in sorted(files) if any({*p.split("-")} <= languages_of(f) for p in pairs)]

    def experiment(self, run: Run) -> tuple[list[str], Experiment]:
        """The words of `xling train` for a run, and what they resolve to."""
        if repr(run) not in self._known:
            config = run.config
            if self.scale != "paper":
                config += f"{',' if ':' in config else ':'}{self.scale}"
            settings = self._text(run, load(config).preparation.pairs)
            settings |= _SMOKE if self.scale == "smoke" else {}
            settings |= {
                k: v[self.scale] if isinstance(v, dict) else v for k, v in run.settings.items()
            }
            settings |= {"seed": self.seed} if self.seed else {}
            overrides = overrides_of(settings)
            experiment = load(config, overrides)
            self._known[repr(run)] = ["--config", config, *overrides], experiment
        return self._known[repr(run)]

    def _text(self, run: Run, pairs: Sequence[str]) -> dict[str, Any]:
        """What a run is trained on, files of any of its pairs, and what it must not see."""
        settings = dict(run.paper) if self.scale == "paper" else {}
        if self.scale != "paper":
            if not (files := self.parallel(run.text, pairs) or self.parallel(["*"], pairs)):
                raise OptionError(f"--data: has no parallel/*.tsv.gz of {' or '.join(pairs)}")
            cut = lambda path: f"[:{int(run.share * _num_rows(path))}]" if run.share < 1 else ""
            settings["data.corpora"] = tuple(f"tsv:{path}{cut(path)}" for path in files)
        if held := self.find("retrieval/*.tsv*"):
            settings["data.exclude"] = tuple(map(str, held))
        return settings

    def model(self, encoder: Run | Published) -> Path:
        """The workdir or model directory of an encoder, trained or converted."""
        if isinstance(encoder, Run):
            return self.train(encoder)
        if source := self.published(encoder):
            output = self.workdir / f"{encoder.name}-{_digest(source, *encoder.convert)}"
            if "laser" in encoder.convert:
                source = next(iter(sorted(source.glob("*.pt"))), source)
            self.xling("convert", *encoder.convert, source, "--output", output, done=output)
            return output
        return self.train(encoder.stand_in)

    def published(self, encoder: Published) -> Path | None:
        """The directory of a published encoder in `--encoders`, if it is there."""
        place = self.encoders / encoder.name if self.encoders else None
        return place if place and place.is_dir() else None

    def place(self, run: Run) -> Path:
        """The workdir of a run."""
        name = re.sub(r"[^A-Za-z0-9+]+", "-", run.config)
        return self.workdir / f"{name}-{fingerprint(self.experiment(run)[1].config)[:8]}"

    def train(self, run: Run) -> Path:
        """The workdir of a run, which is trained first unless it has been."""
        (words, experiment), workdir = self.experiment(run), self.place(run)
        if not self.dry_run and not workdir.exists():
            self._share_text(experiment, workdir)
        self.xling("train", *words, "--workdir", workdir, done=workdir / "encoder")
        return workdir

    def _share_text(self, experiment: Experiment, workdir: Path) -> None:
        """Begins with the prepared text of another run, if there is one made alike."""
        for path in sorted(self.workdir.glob("[!.]*/data/manifest.json")):
            if is_made_with(read_json(path), experiment.preparation):
                with temporary_directory(workdir) as partial:
                    for name in ("data", "vocab"):
                        shutil.copytree(path.parents[1] / name, partial / name)
                    if not workdir.exists():  # another process may have begun it
                        rename_directory(partial, workdir)
                return

    def evaluate(
        self,
        part: Part,
        task: str,
        data: Sequence[object],
        *options: object,
        pictures: bool = False,
    ) -> tuple[dict[str, Any], Path]:
        """The results.json of `xling evaluate`, {} in a dry run, and its directory."""
        model = self.model(part.encoder)
        words = [task, "--data", *data]
        for name, value in part.options.items():
            words += [f"--{name}"] if value is True else [f"--{name}", value]
        words += options
        if part.languages:
            words += ["--languages", ",".join(part.languages)]
        words += [] if task == "probing" else ["--pictures" if pictures else "--no-pictures"]
        output = model / "results" / f"{task}-{_digest(*words)}"
        done = output / ("checkpoints.json" if "--checkpoint" in words else "results.json")
        where = ("--model", model, "--output", output, "--overwrite")  # what an end left of it
        self.xling("evaluate", *words, *where, done=done)
        return (read_json(done) or {}), output

    def xling(self, *words: object, done: Path) -> None:
        """Runs a command unless its result exists; ends with its status if that is not 0."""
        command = shlex.join(map(str, words))
        if self.dry_run:
            if command not in self._printed:
                print(f"xling {command}")
                self._printed.add(command)
            return
        if done.is_dir() or read_json(done):
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
    return sum(1 for _ in iterate_lines(path)) - 1
