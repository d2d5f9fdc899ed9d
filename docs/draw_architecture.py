"""Draws the rooms of the package, their lines and who imports whom.

`python docs/draw_architecture.py docs/images/architecture.svg`
"""

import argparse
import ast
from pathlib import Path

import matplotlib.pyplot as plt

# Rooms that every other one may use; their arrows are not drawn.
FOUNDATION = {"files", "text"}


def rooms(package: Path) -> dict[str, int]:
    """Folder of the package -> lines of Python."""
    lines = {}
    for folder in sorted(p for p in package.iterdir() if (p / "__init__.py").is_file()):
        files = folder.rglob("*.py")
        lines[folder.name] = sum(len(file.read_text("utf-8").splitlines()) for file in files)
    return lines


def arrows(package: Path, names: set[str]) -> set[tuple[str, str]]:
    """(importing room, imported room)."""
    found = set()
    for room in names:
        for file in (package / room).rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text("utf-8"))):
                modules = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
                if isinstance(node, ast.ImportFrom):
                    modules += [f"{node.module}.{alias.name}" for alias in node.names]
                elif isinstance(node, ast.Import):
                    modules = [alias.name for alias in node.names]
                for module in modules:
                    parts = module.split(".")
                    if parts[0] == "xling_jax" and len(parts) > 1:
                        found |= {(room, name) for name in names - {room} if name == parts[1]}
    return found


def levels(names: set[str], edges: set[tuple[str, str]]) -> dict[str, int]:
    """Room -> height above what imports nothing; rooms of a cycle are level."""
    level = dict.fromkeys(names, 0)
    for _ in names:
        for importer, imported in sorted(edges):
            if (imported, importer) not in edges:
                level[importer] = max(level[importer], level[imported] + 1)
    return level


def draw(axes: plt.Axes, package: Path) -> None:
    """The rooms of a package."""
    lines = rooms(package)
    base = FOUNDATION & set(lines)
    edges = {(a, b) for a, b in arrows(package, set(lines)) if b not in base}
    level = levels(set(lines), edges) | dict.fromkeys(base, -1)
    place = {}
    for height in range(min(level.values()), max(level.values()) + 1):
        row = sorted(name for name in lines if level[name] == height)
        for number, name in enumerate(row):
            # Rows are shifted against each other: arrows would go through boxes.
            place[name] = (10 * (number + 0.5 + 0.2 * (height % 3 - 1)) / len(row), height)
    direct = {
        (a, b)
        for a, b in edges
        if not any((a, c) in edges and (c, b) in edges for c in lines if c not in (a, b))
    }
    for a, b in sorted(edges):
        both = (b, a) in edges
        axes.annotate(
            "",
            xy=(place[b][0], place[b][1] + 0.16),
            xytext=(place[a][0], place[a][1] - 0.16),
            arrowprops={
                "arrowstyle": "-|>",
                "color": "firebrick" if both else "0.25" if (a, b) in direct else "0.8",
                "lw": 1.6 if both else 1.0 if (a, b) in direct else 0.6,
                "shrinkA": 0,
                "shrinkB": 0,
            },
            zorder=2 if (a, b) in direct else 1,
        )
    for name, (x, y) in place.items():
        text = f"{name}\n{lines[name]:,}"
        color = "0.92" if name in base else "aliceblue"
        box = {"boxstyle": "round,pad=0.35", "fc": color, "ec": "steelblue"}
        axes.text(x, y, text, ha="center", va="center", fontsize=9, bbox=box, zorder=3)
    total = sum(len(f.read_text("utf-8").splitlines()) for f in package.rglob("*.py"))
    axes.set_title(f"{total:,} lines, {len(lines)} rooms, {len(edges)} arrows", fontsize=11)
    axes.set_xlim(-0.4, 10.4)
    if base:
        axes.axhline(-0.5, color="0.7", lw=0.8, ls="--")
        axes.text(10.4, -0.6, "every room may use", ha="right", va="top", fontsize=8, color="0.4")
    axes.set_ylim(min(level.values()) - 0.5, max(level.values()) + 0.5)
    axes.axis("off")


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output", type=Path)
    figure, axes = plt.subplots(figsize=(10, 7.5), layout="tight")
    draw(axes, Path(__file__).parents[1] / "xling_jax")
    figure.savefig(parser.parse_args().output, metadata={"Date": None})


if __name__ == "__main__":
    main()
