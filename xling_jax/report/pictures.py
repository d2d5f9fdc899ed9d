"""Pictures of results: matrices as heatmaps, embeddings in two dimensions.

Colors are safe for the color-blind: cividis for values, and for languages the palette of Okabe and
Ito, each with its own marker shape.
"""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from sklearn.preprocessing import normalize

from xling_jax.eval.results import Heatmap, Projection

PROJECTIONS = ("pca", "tsne")

_INK, _FAINT = "#262626", "#8c8c8c"
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
    cell, size = (0.62, 10) if max(percent.shape) <= 12 else (0.42, 7)
    width, height = max(5.2, cell * len(columns) + 2.2), cell * len(rows) + 1.9
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.add_subplot()
    mesh = axes.pcolormesh(
        percent, cmap="cividis", vmin=low, vmax=100, edgecolors="white", linewidth=1.5
    )
    for (row, column), value in np.ndenumerate(percent):
        if np.isfinite(value):
            text = f"{value:.1f}" if value < 99.95 else "100"
            ink = "white" if (value - low) / (100 - low) < 0.55 else "black"
            place = {"ha": "center", "va": "center", "fontsize": size}
            axes.text(column + 0.5, row + 0.5, text, color=ink, **place)
    axes.set_aspect("equal")
    axes.invert_yaxis()
    turn = 90 if len(columns) > 12 or max(map(len, columns)) > 4 else 0
    axes.set_xticks(np.arange(len(columns)) + 0.5, columns, rotation=turn)
    axes.set_yticks(np.arange(len(rows)) + 0.5, rows)
    axes.tick_params(length=0, labeltop=True, labelbottom=False, labelsize=size + 1, colors=_INK)
    axes.spines[:].set_visible(False)
    axes.set_ylabel(picture.axes[0], color=_FAINT)
    axes.set_xlabel(picture.axes[1], color=_FAINT)
    axes.xaxis.set_label_position("top")
    bar = figure.colorbar(mesh, ax=axes, shrink=0.85, pad=0.03)
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=0, labelsize=9, colors=_INK)
    bar.set_label("%", rotation=0, color=_FAINT)
    _set_title(figure, picture.title)
    return figure


def project(vectors: np.ndarray, method: str = "pca") -> np.ndarray:
    """Projects n > 1 embeddings, normalized first, to the plane: [n, 2] float64, always the same.

    By "pca", the two directions of largest variance, or by "tsne", neighborhoods.
    """
    unit = normalize(vectors).astype(np.float64)
    if len(unit) < 2:
        raise ValueError(f"a projection needs at least two vectors; got {len(unit)}")
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
    """Embeddings of translations in the plane, colored by language."""
    counts = {code: len(rows) for code, rows in picture.embeddings.items()}
    if len(set(counts.values())) != 1:
        raise ValueError(f"row i must be one meaning in all languages; got row counts {counts}")
    n = next(iter(counts.values()))
    shown = np.linspace(0, n - 1, min(n, max(2, _MAX_POINTS // len(counts)))).round().astype(int)
    points = project(np.concatenate([rows[shown] for rows in picture.embeddings.values()]), method)
    figure = Figure(figsize=(8.2, 6.2), layout="constrained")
    axes = figure.add_subplot(xticks=[], yticks=[])
    for place, (code, cloud) in enumerate(zip(counts, np.split(points, len(counts)))):
        style = {"color": _COLORS[place % len(_COLORS)], "marker": _MARKERS[place % len(_MARKERS)]}
        axes.scatter(*cloud.T, s=14, alpha=0.45, linewidths=0, label=code, **style)
    axes.margins(0.04)
    axes.spines[:].set_color("#d9d9d9")
    legend = axes.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False, markerscale=2)
    for handle in legend.legend_handles:
        handle.set_alpha(1)
    name = {"pca": "PCA", "tsne": "t-SNE"}[method]
    subtitle = f"{name} of {len(shown)} sentences in {len(counts)} languages"
    _set_title(figure, picture.title, subtitle)
    return figure


def _set_title(figure: Figure, title: str, subtitle: str = "") -> None:
    heading = f"{title}\n" if subtitle else title
    figure.suptitle(heading, x=0.01, ha="left", fontsize=13, fontweight="bold", color=_INK)
    if subtitle:
        height = figure.get_figheight()
        figure.text(0.01, 1 - 0.33 / height, subtitle, va="top", fontsize=9.5, color=_FAINT)
