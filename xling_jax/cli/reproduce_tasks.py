"""The tasks of the papers' tables: how each cell is measured."""

import dataclasses
import glob
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

import xling_jax
from xling_jax.cli.reproduce_runs import Reproduction, languages_of, overrides_of
from xling_jax.config import load
from xling_jax.corpora.specs import read_corpus
from xling_jax.documents.records import read_documents
from xling_jax.encode.documents import document_encoder
from xling_jax.eval.classification_data import list_languages, load_classification_data
from xling_jax.eval.probing_data import list_tasks
from xling_jax.eval.results import Projection
from xling_jax.eval.retrieval_data import load_retrieval_data
from xling_jax.files.whole import read_json
from xling_jax.options import OptionError
from xling_jax.papers.tables import Key, Measured, Part, Published, Run, Table, published
from xling_jax.train.dry_run import planned_memory, published_count
from xling_jax.train.training import resolve

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
        ["docs/*.dev.jsonl*"],
        "pages and pairs of https://www.statmt.org/wmt16/bilingual-task.html; the config "
        "lawdr_wmt16 says how to make it",
    ),
    "wmt19": (
        ["docs/wmt19.jsonl.gz"],
        ["docs/*.dev.jsonl*"],
        "http://data.statmt.org/news-commentary/v14/documents.tgz; the config lawdr_wmt19 says how "
        "to make it",
    ),
}
_XSR, _XSR_SMOKE = "200000,2000", "150,50"
_XSR_FILES = "parallel/europarl*.tsv*"


def _files(runs: Reproduction, name: str) -> list[Path]:
    """The files of data of the papers, or below `paper` one in their place."""
    paths, instead, _ = DATA[name]
    files = [runs.data / path for path in paths] if runs.data else []
    if files and all(path.exists() for path in files):
        return files
    return [] if runs.scale == "paper" else runs.find(*instead)[:1]


def _languages_here(runs: Reproduction, part: Part) -> tuple[str, ...]:
    """The languages of a part in which its data has text, where that can be told by its files."""
    known = part.languages
    if part.task in ("classification", "classes"):
        known = list_languages(_files(runs, "mldoc")[0])
    elif part.task in ("retrieval", "neighbors"):
        file = _files(runs, "europarl-5k")[0]
        known = languages_of(file) if ".tsv" in file.name else known
    return tuple(code for code in part.languages if code in known)


def _classification(runs: Reproduction, part: Part) -> Measured:
    folder = _files(runs, "mldoc")
    one_seed = part.options["classifiers"] in ("mlp", "linear") and runs.scale == "smoke"
    words = ["--seeds", "1"] if one_seed else []
    found, epoch = Measured(), None
    if part.checkpoint in ("dev", "best", "half"):
        results, epoch = _chosen(runs, part, words)
    else:
        results, _ = runs.evaluate(part, "classification", folder, *words)
    for matrix in results.get("matrices", {}).values():
        kind = matrix.get("oracle" if part.checkpoint == "oracle" else "accuracy") or {}
        if not kind:  # The dev text is what is tested on.
            found.missing.append(f"test.*.tsv beside dev.*.tsv in {folder[0].name}")
        renamed = {"others" if s == "the others" else s: row for s, row in kind.items()}
        found.add_matrix(part.measure, renamed)
        size = min(matrix["num_test"].values())
        found.facts.append(f"{folder[0].name}, {matrix['test_split']}: at least {size} texts")
    found.cells |= {Key("epoch"): epoch} if epoch else {}
    return found


def _chosen(runs: Reproduction, part: Part, words: list[str]) -> tuple[dict, float | None]:
    """Results of the checkpoint that is chosen on a split, and its epoch if that is known."""
    folder = _files(runs, "mldoc")
    has_test = any(folder[0].glob("test.*"))
    split = "test" if part.checkpoint == "best" and has_test else "dev"
    every = [*words, "--checkpoint", "all", "--metric", "cross", "--split"]
    scores, place = runs.evaluate(part, "classification", folder, *every, split)
    if runs.dry_run and has_test and part.checkpoint != "half":
        runs.evaluate(part, "classification", folder, *every, "test")
    if not scores:
        return {}, None
    steps, chosen = sorted(map(int, scores["scores"])), scores["best"]
    experiment = runs.experiment(part.encoder)[1]
    if part.checkpoint == "half":
        chosen = min(steps, key=lambda step: abs(step - steps[-1] / 2))
    elif has_test:
        _, place = runs.evaluate(part, "classification", folder, *every, "test")
    epochs = experiment.config["train"].get("total_epochs")
    return read_json(place / str(chosen) / "results.json"), epochs and epochs * chosen / steps[-1]


def _retrieval(runs: Reproduction, part: Part) -> Measured:
    """P@1 of all directions, and among how many candidates."""
    results, _ = runs.evaluate(part, "retrieval", _files(runs, "europarl-5k"))
    found = Measured()
    for name, matrix in results.get("matrices", {}).items():
        found.add_matrix(part.measure, matrix["p_at_1"])
        counts = {v for row in matrix["num_candidates"].values() for v in row.values() if v}
        found.facts.append(f"{name}: {', '.join(f'{n:,}' for n in sorted(counts))} candidates")
    return found


def _xsr_corpus(runs: Reproduction, part: Part) -> str:
    europarl = f"tfds:europarl_v7/{'-'.join(sorted(part.languages))}:train[:800000]"
    return europarl if runs.scale == "paper" else f"tsv:{glob.escape(str(runs.data))}/{_XSR_FILES}"


def _xsr(runs: Reproduction, part: Part) -> Measured:
    """2,000 queries among 200,000 sentences of Europarl, or as many as there are."""
    part = dataclasses.replace(part, languages=tuple(sorted(part.languages)))
    drawn = _XSR_SMOKE if runs.scale == "smoke" else _XSR
    results, _ = runs.evaluate(part, "retrieval", [_xsr_corpus(runs, part)], "--xsr", drawn)
    found = Measured()
    for matrix in results.get("matrices", {}).values():
        found.add_matrix(part.measure, matrix["p_at_1"])
        counts = (matrix["num_candidates"][key.source][key.target] for key in found.cells)
        found.facts = [f"XSR, {'-'.join(part.languages)}: among {min(counts):,} sentences"]
    return found


def _probing(runs: Reproduction, part: Part) -> Measured:
    names = {"SST2": "SST"} | {name: name for name in ("MR", "CR", "MPQA", "SUBJ", "TREC")}
    folder = _files(runs, "senteval")
    here = [name for name in names if name in list_tasks(folder[0])]
    words = ["--classifier", "mlp", "--tasks", ",".join(here)]
    results, _ = runs.evaluate(part, "probing", folder, *words)
    metrics, found = results.get("metrics", {}), Measured()
    shown = {to: metrics.get(f"{name}/accuracy") for name, to in names.items()}
    found.add_matrix(part.measure, {"en": shown})
    return found


def _ranked(runs: Reproduction, part: Part) -> Part:
    """Of a narrower encoder that stands in, removes at most a quarter of the dimensions."""
    stand_in = getattr(part.encoder, "stand_in", None)
    if not stand_in or runs.published(part.encoder) or runs.scale == "paper":
        return part
    width = runs.experiment(stand_in)[1].config["encoder"]["width"]
    rank = min(part.options["debias"], width // 4)
    return dataclasses.replace(part, options=part.options | {"debias": rank})


def _alignment(runs: Reproduction, part: Part) -> Measured:
    """The eight cells of LAWDR, or a baseline of whole documents."""
    name, _, baseline = part.task.partition("-")
    files = _files(runs, name)
    options = ["--languages", "en,fr"] if name == "wmt16" else []
    options += ["--gold", files[2], "--domain", "domain"] if files[2:] else []
    results, _ = runs.evaluate(_ranked(runs, part), "alignment", files[:2], *options)
    found = Measured()
    for data, matrix in results.get("matrices", {}).items():
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


def _language(runs: Reproduction, part: Part) -> Measured:
    words = ["--languages", "en,fr"]
    words += ["--site", "eu2007.de"] if runs.scale == "paper" else []
    files = _files(runs, "wmt16")[:2]
    results, place = runs.evaluate(_ranked(runs, part), "language", files, *words, pictures=True)
    found = Measured()
    for metric, value in results.get("metrics", {}).items():
        found.cells[Key(part.measure, target=metric.rpartition("/")[2])] = 100 * value
    for data, scores in results.get("matrices", {}).items():
        found.facts.append(f"{data}: {scores['rank']} components")
        found.pictures = sorted(place.glob("*.pca.png"))
    return found


def _document_counts(runs: Reproduction, part: Part) -> Measured:
    files = _files(runs, part.task.removeprefix("documents-"))
    found = (document for file in files[:2] for document in read_documents(file))
    kept = [one for one in found if not part.languages or one.language in part.languages]
    words = sum(len(sentence.split()) for one in kept for sentence in one.sentences)
    cells = {Key("documents"): len(kept), Key("average length"): words / max(len(kept), 1)}
    return Measured(cells, facts=[file.name for file in files[:2]])


def _size(runs: Reproduction, part: Part) -> Measured:
    """Sizes of the published config, named as in both papers."""
    experiment = load(part.encoder.config, overrides_of(part.encoder.settings))
    encoder, decoder = (experiment.config.get(side) or {} for side in ("encoder", "decoder"))
    recurrent = encoder["family"] == "laser"
    known = {
        "architecture": "BiLSTM" if recurrent else "Transformer",
        "d_h": f"{encoder['width'] // 2}x2" if recurrent else encoder["width"],
        "d_z": decoder.get("width"),
        "heads": encoder.get("heads"),
        "d_fc": encoder.get("ffn_width"),
        "encoder layers": encoder["layers"],
        "decoder layers": decoder.get("layers", 1) if decoder else None,
        "vocabulary": experiment.preparation.vocab.size,
        "parameters": published_count(experiment),
    }
    return Measured({Key(n): v for n, v in known.items() if n in part.options and v is not None})


def _neighbors(runs: Reproduction, part: Part) -> Measured:
    """The nearest three sentences of each language, without the translation itself."""
    model, files = runs.model(part.encoder), _files(runs, "europarl-5k")
    query = published("yu-3")["similarity loss"][Key("query")]
    texts = load_retrieval_data(files[0], part.languages).parts[0].texts
    row = texts["en"].index(query) if query in texts["en"] else 0
    encoder = xling_jax.load(model)
    found = Measured({Key("query"): texts["en"][row]}, facts=[files[0].name])
    for code, column in texts.items():
        hits = xling_jax.search(texts["en"][row], column, encoder, k=4)
        others = [hit.text for hit in hits if hit.position != row]
        for place, text in enumerate(others[:3], 1):
            found.cells[Key(code, target=str(place))] = text
    return found


def _classes(runs: Reproduction, part: Part) -> Measured:
    """t-SNE of the German test documents by class."""
    from xling_jax.report.pictures import draw_all

    model, folder = runs.model(part.encoder), _files(runs, "mldoc")
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


def _speed(runs: Reproduction, part: Part) -> Measured:
    """Tokens per second, or minutes for 10,000 updates, as training logged them last."""
    model = runs.model(part.encoder)
    lines = map(json.loads, (model / "metrics.jsonl").read_text("utf-8").splitlines())
    last = [line for line in lines if "train/steps_per_second" in line][-1]
    if part.task == "speed":
        return Measured({Key(part.measure): last["train/tokens_per_second"]})
    minutes = 10_000 / last["train/steps_per_second"] / 60
    return Measured({Key("minutes per 10,000 updates"): minutes})


def _memory(runs: Reproduction, part: Part) -> Measured:
    memory = planned_memory(resolve(runs.experiment(part.encoder)[1]))
    return Measured({Key("memory, MB"): sum(memory.values()) / 2**20})


def _pairs(runs: Reproduction, part: Part) -> Measured:
    """Rows before and after the filter of letters; other filters come after."""
    model = runs.model(part.encoder)
    corpora = read_json(model / "data/counts.json")["corpora"].values()
    pairs = [counts for corpus in corpora for counts in corpus.values()]
    value = sum(counts["read"] for counts in pairs)
    if part.task == "filtered-pairs":
        value -= sum(counts["wrong_letters"] for counts in pairs)
    return Measured({Key(part.measure): value})


# Name -> how it is measured, and what data of the papers that needs.
TASKS: dict[str, tuple[Callable[[Reproduction, Part], Measured], str]] = {
    "classification": (_classification, "mldoc"),
    "classes": (_classes, "mldoc"),
    "retrieval": (_retrieval, "europarl-5k"),
    "neighbors": (_neighbors, "europarl-5k"),
    "xsr": (_xsr, "Europarl v7"),
    "probing": (_probing, "senteval"),
    "language": (_language, "wmt16"),
    **dict.fromkeys(("wmt16", "wmt16-first512", "wmt16-document"), (_alignment, "wmt16")),
    **dict.fromkeys(("wmt19", "wmt19-first512", "wmt19-document"), (_alignment, "wmt19")),
    "documents-wmt16": (_document_counts, "wmt16"),
    "documents-wmt19": (_document_counts, "wmt19"),
    "size": (_size, ""),
    **dict.fromkeys(("speed", "update-time"), (_speed, "")),
    "memory": (_memory, ""),
    **dict.fromkeys(("raw-pairs", "filtered-pairs"), (_pairs, "")),
}


_UNTRAINED = (_size, _document_counts)
_EVALUATED = (_classification, _retrieval, _xsr, _probing, _language, _alignment)


def measure(runs: Reproduction, part: Part) -> Measured:
    """The cells of a part, or what is missing in `--data` or `--encoders`."""
    missing, function = _missing(runs, part), TASKS[part.task][0]
    if missing or (runs.dry_run and function not in _EVALUATED):
        for run in _trained([part]) if runs.dry_run else ():
            runs.train(run)
        return Measured(missing=missing)
    part = dataclasses.replace(part, languages=_languages_here(runs, part))
    found = function(runs, part)
    if isinstance(part.encoder, Published) and not runs.published(part.encoder):
        found.facts.append(f"an encoder trained on masked tokens stands in for {part.encoder.name}")
    return found


def needed(table: Table) -> tuple[int, list[str]]:
    """The number of trainings of a table at `paper`, and the data and encoders."""
    parts = [part for row in table.rows for part in row.parts]
    names = [TASKS[part.task][1] for part in parts]
    names += [f"{p.encoder.name} in --encoders" for p in parts if isinstance(p.encoder, Published)]
    return len(_trained(parts)), [*dict.fromkeys(filter(None, names))]


def check(runs: Reproduction, table: Table) -> None:
    """Raises, in one line, for what a table lacks at `paper`, text to be trained on included."""
    parts = [part for row in table.rows for part in row.parts]
    for part in parts:
        for missing in _missing(runs, part):
            raise OptionError(f"--scale paper: needs {missing}")
        if part.task == "xsr":
            read_corpus(_xsr_corpus(runs, part), part.languages)
    for run in _trained(parts):
        text = runs.experiment(run)[1].preparation
        for corpus in () if (runs.place(run) / "encoder").exists() else text.corpora:
            read_corpus(corpus, text.languages)


def _trained(parts: Sequence[Part]) -> list[Run]:
    found = {repr(p.encoder): p.encoder for p in parts if TASKS[p.task][0] not in _UNTRAINED}
    return [encoder for encoder in found.values() if isinstance(encoder, Run)]


def _missing(runs: Reproduction, part: Part) -> list[str]:
    encoder, name, is_paper = part.encoder, TASKS[part.task][1], runs.scale == "paper"
    is_here = isinstance(encoder, Run) or runs.published(encoder)
    if not is_here and (is_paper or not encoder.stand_in):
        return [f"{encoder.name} in --encoders"]
    if name in DATA and not _files(runs, name):
        paths, _, origin = DATA[name]
        path = next(path for path in paths if not runs.data or not (runs.data / path).exists())
        return [f"{path} in --data" + (f"; {origin}" if is_paper else "")]
    if len(_languages_here(runs, part)) < min(2, len(part.languages)):
        return [f"text in {' and '.join(part.languages[:2])} in {_files(runs, name)[0].name}"]
    pair = "-".join(part.languages)
    lacks_pair = part.task == "xsr" and not is_paper and not runs.parallel(["europarl*"], [pair])
    return [f"{_XSR_FILES} of {pair} in --data"] if lacks_pair else []
