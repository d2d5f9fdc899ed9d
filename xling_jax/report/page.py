"""One self-contained HTML page from runs and results; the page itself is in page.html.jinja."""

import base64
import importlib.resources
from collections.abc import Sequence

import jinja2

from xling_jax.eval.tasks import TASKS
from xling_jax.files.untrusted import one_line
from xling_jax.report import tables
from xling_jax.report.charts import COLORS, curves
from xling_jax.report.errors import ErrorList
from xling_jax.report.runs import Run


def make_page(
    runs: Sequence[Run],
    errors: Sequence[ErrorList] = (),
    *,
    title: str = "Cross-lingual sentence embeddings",
    note: str = "",
    command: str = "",
) -> str:
    """Returns the report as one HTML page; the order of the runs gives their colors."""
    files = importlib.resources.files("xling_jax.report")
    texts = {name: files.joinpath(f"report.{name}").read_text("utf-8") for name in ("css", "js")}
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string(files.joinpath("page.html.jinja").read_text("utf-8"))
    try:
        return template.render(
            sections=[section for section in _sections(runs, errors) if section[-1]],
            title=title,
            note=note,
            command=command,
            colors=COLORS,
            style=texts["css"],
            script=texts["js"],
        )
    except Exception as error:  # what a value of the wrong type does deep inside
        names = ", ".join(str(run.path or run.name) for run in runs)
        raise ValueError(
            f"{names}: config or results hold values of the wrong type ({one_line(error, 200)}); "
            "evaluate again"
        ) from error


def _sections(runs: Sequence[Run], errors: Sequence[ErrorList]) -> list[tuple]:
    # Identifier, heading, kind of content as the template draws it, and content.
    return [
        ("runs", "Runs", "runs", tables.run_table(runs)),
        ("compare", "Side by side", "comparisons", tables.comparison(runs)),
        ("curves", "Training curves", "curves", curves(runs)),
        *((name, TASKS[name].title, "pictures", _pictures(runs, name)) for name in TASKS),
        ("other", "Other results", "metrics", tables.other_results(runs)),
        ("errors", "Worst retrieval errors", "errors", errors),
        ("origins", "What was measured how", "origins", tables.origins(runs)),
    ]


def _pictures(runs: Sequence[Run], task: str) -> list[tuple[str, str]]:
    """Titles and contents, in Base64, of the pictures that `xling evaluate` drew of a task."""
    found = [
        (path, run.measured_name(results))
        for run in runs
        for results in run.results
        if results["task"] == task
        for path in results.get("pictures", ())
    ]
    found.sort(key=lambda item: item[0].stem)  # the same picture of several runs side by side
    return [
        (f"{name}: {path.stem}", base64.b64encode(path.read_bytes()).decode())
        for path, name in found
    ]
