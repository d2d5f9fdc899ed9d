"""Pictures of results: matrices as heatmaps, embeddings in two dimensions.

Colors are safe for the color-blind: cividis for values, and for languages the palette of Okabe and
Ito, each with its own marker shape.
"""

import textwrap
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
from matplotlib import font_manager, patheffects
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from sklearn.preprocessing import normalize

from xling_jax.eval.results import Heatmap, Projection
from xling_jax.registry import check_choice

PROJECTIONS = ("pca", "tsne")

_INK = "#262626"
_FAINT = "#8c8c8c"
# Okabe and Ito (2008) without yellow, which is too pale for small marks on white.
_COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_MARKERS = ("o", "^", "s", "D", "v", "P", "X")
_MAX_POINTS = 1000  # of all languages together; beyond, rows are thinned out evenly
_SEED = 0
# 250 with exaggeration, as usual; after as many again the clusters of a thousand points are stable.
_TSNE_ITERATIONS = 500


def draw_all(pictures: Iterable[Heatmap | Projection], directory: Path) -> None:
    """Draws pictures as PNG files in a directory that exists; all matrices in the same colors."""
    matrices = []
    for picture in pictures:
        if isinstance(picture, Heatmap):
            matrices.append(picture)  # The colors depend on all of them.
            continue
        for method in PROJECTIONS:
            _save(_draw_projection(picture, method), directory / f"{picture.name}.{method}.png")
    # From the least value, to show differences; the numbers give the absolute.
    worst = min((np.nanmin(one.values, initial=1) for one in matrices), default=1)
    low = min(90, np.floor(10 * worst) * 10)
    for picture in matrices:
        _save(_draw_matrix(picture, low), directory / f"{picture.name}.png")


def _save(figure: Figure, path: Path) -> None:
    figure.savefig(path, dpi=150, facecolor="white", metadata={"Software": None})


def _draw_matrix(picture: Heatmap, low: float) -> Figure:
    """A heatmap with the percentages written in it; its colors begin at `low` percent."""
    rows, columns = picture.rows, picture.columns
    percent = 100 * np.asarray(picture.values, np.float64)
    if percent.shape != (len(rows), len(columns)):
        names = (len(rows), len(columns))
        raise ValueError(f"values must have the shape of the names, {names}; got {percent.shape}")
    is_small = max(percent.shape) <= 12
    cell = 0.62 if is_small else 0.42
    width, height = max(5.2, cell * len(columns) + 2.2), cell * len(rows) + 1.9
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.add_subplot()
    image = axes.imshow(percent, cmap="cividis", vmin=low, vmax=100, aspect="equal")
    for (row, column), value in np.ndenumerate(percent):
        if np.isfinite(value):
            axes.text(
                column,
                row,
                f"{value:.1f}" if value < 99.95 else "100",
                ha="center",
                va="center",
                fontsize=10 if is_small else 7,
                color="white" if (value - low) / (100 - low) < 0.55 else "black",
            )
    size = 11 if is_small else 8
    turn = 90 if len(columns) > 12 or max(map(len, columns)) > 4 else 0
    axes.set_xticks(range(len(columns)), columns, fontsize=size, color=_INK, rotation=turn)
    axes.set_yticks(range(len(rows)), rows, fontsize=size, color=_INK)
    axes.tick_params(length=0, top=False, labeltop=True, bottom=False, labelbottom=False)
    axes.set_xticks(np.arange(len(columns) + 1) - 0.5, minor=True)
    axes.set_yticks(np.arange(len(rows) + 1) - 0.5, minor=True)
    axes.grid(which="minor", color="white", linewidth=1.5)
    axes.tick_params(which="minor", length=0)
    axes.spines[:].set_visible(False)
    axes.set_ylabel(picture.axes[0], color=_FAINT)
    axes.set_xlabel(picture.axes[1], color=_FAINT)
    axes.xaxis.set_label_position("top")
    bar = figure.colorbar(image, ax=axes, shrink=0.85, pad=0.03)
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=0, labelsize=9, colors=_INK)
    bar.set_label("%", rotation=0, color=_FAINT)
    _set_title(figure, picture.title, picture.subtitle)
    return figure


def project(vectors: np.ndarray, method: str = "pca") -> np.ndarray:
    """Projects n > 1 embeddings, normalized first, to the plane: [n, 2] float64, always the same.

    By "pca", the two directions of largest variance, or by "tsne", neighborhoods.
    """
    unit = normalize(vectors).astype(np.float64)
    if len(unit) < 2:
        raise ValueError(f"a projection needs at least two vectors; got {len(unit)}")
    check_choice("method", method, PROJECTIONS)
    if method == "pca":
        from sklearn.decomposition import PCA

        return PCA(2, svd_solver="full").fit_transform(unit)
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits

    perplexity = min(30.0, max(1.0, (len(unit) - 1) / 4))
    # One thread: two took 1.7 times as long on two busy cores.
    with threadpool_limits(1):
        return TSNE(
            perplexity=perplexity, init="pca", random_state=_SEED, max_iter=_TSNE_ITERATIONS
        ).fit_transform(unit)


def _draw_projection(picture: Projection, method: str) -> Figure:
    """Embeddings of translations in the plane, colored by language, examples numbered."""
    embeddings, examples = picture.embeddings, picture.examples
    counts = {code: len(rows) for code, rows in embeddings.items()}
    if len(set(counts.values())) != 1:
        raise ValueError(f"row i must be one meaning in all languages; got row counts {counts}")
    n = next(iter(counts.values()))
    shown = np.linspace(0, n - 1, min(n, max(2, _MAX_POINTS // len(counts)))).round().astype(int)
    shown = np.union1d(shown, np.array(list(examples), int))
    points = project(np.concatenate([rows[shown] for rows in embeddings.values()]), method)
    points = points.reshape(len(counts), len(shown), 2)

    figure = Figure(figsize=(9.5, 6.2), layout="constrained")
    axes = figure.add_subplot()
    for place, (code, cloud) in enumerate(zip(counts, points)):
        axes.scatter(
            *cloud.T,
            s=14,
            marker=_MARKERS[place % len(_MARKERS)],
            color=_COLORS[place % len(_COLORS)],
            alpha=0.45,
            linewidths=0,
            label=code,
        )
    for number, row in enumerate(examples, start=1):
        _draw_example(axes, number, points[:, np.searchsorted(shown, row)])
    axes.set_xticks([])
    axes.set_yticks([])
    axes.margins(0.04)
    axes.spines[:].set_color("#d9d9d9")
    _draw_legend(axes, examples)
    name = {"pca": "PCA", "tsne": "t-SNE"}[method]
    subtitle = f"{name} of {len(shown)} sentences in {len(counts)} languages"
    _set_title(figure, picture.title, subtitle)
    return figure


def _draw_example(axes: Axes, number: int, points: np.ndarray) -> None:
    """Joins translations, at [languages, 2], to their center, with the number of the sentence."""
    center = points.mean(axis=0)
    for language, point in enumerate(points):
        axes.plot(*np.stack([center, point]).T, color=_INK, linewidth=0.9, zorder=3)
        axes.plot(
            *point,
            marker=_MARKERS[language % len(_MARKERS)],
            color=_COLORS[language % len(_COLORS)],
            markeredgecolor="white",
            markeredgewidth=0.7,
            markersize=8,
            zorder=4,
        )
    axes.annotate(
        str(number),
        points[points[:, 1].argmax()],
        xytext=(0, 6),
        textcoords="offset points",
        ha="center",
        fontsize=11,
        fontweight="bold",
        color=_INK,
        zorder=5,
        path_effects=[patheffects.withStroke(linewidth=3, foreground="white")],
    )


def _draw_legend(axes: Axes, examples: Mapping[int, str]) -> None:
    """Languages and, below them, the numbered sentences, to the right of the picture."""
    legend = axes.legend(
        loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False, markerscale=2, borderaxespad=0
    )
    for handle in legend.legend_handles:
        handle.set_alpha(1)
    # Texts with characters that the font lacks would show as boxes.
    known = font_manager.get_font(font_manager.findfont("DejaVu Sans")).get_charmap()
    texts = []
    for number, text in enumerate(examples.values(), start=1):
        short = textwrap.shorten(text, 78, placeholder="…")
        if all(character.isspace() or ord(character) in known for character in short):
            texts.append(
                textwrap.fill(short, 27, initial_indent=f"{number}  ", subsequent_indent="    ")
            )
    if texts:
        axes.text(
            1.02,
            0.0,
            "\n".join(texts),
            transform=axes.transAxes,
            va="bottom",
            fontsize=8.5,
            color=_INK,
            linespacing=1.35,
            parse_math=False,  # two dollar signs are no formula
        )


def _set_title(figure: Figure, title: str, subtitle: str) -> None:
    heading = f"{title}\n" if subtitle else title
    figure.suptitle(heading, x=0.01, ha="left", fontsize=13, fontweight="bold", color=_INK)
    if subtitle:
        height = figure.get_figheight()
        figure.text(0.01, 1 - 0.33 / height, subtitle, va="top", fontsize=9.5, color=_FAINT)
