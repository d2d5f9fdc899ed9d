"""One self-contained HTML page from runs and results; the page itself is in page.html.jinja."""

import importlib.resources
from collections.abc import Sequence

import jinja2

from xling_jax.eval.tasks import TASKS
from xling_jax.files.untrusted import one_line
from xling_jax.report import tables
from xling_jax.report.charts import curves
from xling_jax.report.matrices import matrices
from xling_jax.report.runs import Run
from xling_jax.report.vectors import RunVectors, drawings


def make_page(
    runs: Sequence[Run],
    vectors: Sequence[RunVectors] = (),
    *,
    title: str,
    note: str = "",
    command: str = "",
) -> str:
    """Returns the report as one HTML page; the order of the runs gives their colors.

    An error names the run whose config or results are not as this library writes them.
    """
    try:
        return _make_page(runs, vectors, title, note, command)
    except Exception as error:  # what a value of the wrong type does deep inside
        for run in runs:
            try:
                _make_page([run], (), title, note, command)
            except Exception:
                raise ValueError(
                    f"{run.path or run.name}: its config or results hold values of the wrong type "
                    f"({one_line(error, 200)}); evaluate again"
                ) from error
        raise


def _make_page(
    runs: Sequence[Run], vectors: Sequence[RunVectors], title: str, note: str, command: str
) -> str:
    # Identifier, heading, kind of content as the template draws it, and content.
    sections = [
        ("runs", "Runs", "runs", tables.run_table(runs)),
        ("compare", "Side by side", "comparisons", tables.comparison(runs)),
        ("curves", "Training curves", "curves", curves(runs)),
        *((name, TASKS[name].title, "matrices", matrices(runs, name)) for name in TASKS),
        ("other", "Other results", "metrics", tables.other_results(runs)),
        ("plane", "Vectors in the plane", "projections", drawings(vectors)),
        ("errors", "Worst retrieval errors", "errors", [one for one in vectors if one.errors]),
    ]
    files = importlib.resources.files("xling_jax.report")
    texts = {name: files.joinpath(f"report.{name}").read_text("utf-8") for name in ("css", "js")}
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.policies["json.dumps_kwargs"] = {
        "ensure_ascii": False,
        "separators": (",", ":"),
        "allow_nan": False,
    }
    template = environment.from_string(files.joinpath("page.html.jinja").read_text("utf-8"))
    return template.render(
        sections=[section for section in sections if section[-1]],
        title=title,
        note=note,
        command=command,
        style=texts["css"],
        script=texts["js"],
    )
