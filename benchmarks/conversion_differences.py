"""How far converted encoders and exported forms are from their originals, for every family.

    python benchmarks/conversion_differences.py

Random originals with unusual settings, 175 texts: empty, hostile, long, and one in each script of
Unicode (`tests/formats/every_family.py`). "In" compares `xling convert` with the original library,
the other columns compare the export with our encoder, each by the library that it is for. Numbers
are the largest difference of a vector, relative to its length. Where a form is refused the cell
gives the reason; the tests allow 1e-5 in and 1e-4 out.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from interleaved import circumstances, markdown_table

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.formats.every_family import FAMILIES, TEXTS, difference  # noqa: E402
from tests.formats.test_every_form import vectors_of  # noqa: E402

FORMS = ("onnx", "sentence-transformers", "model2vec")


def row(name: str) -> list[str]:
    """The differences of a family."""
    import xling_jax
    from xling_jax.formats.registry import EXPORTERS

    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        original = FAMILIES[name](folder)
        vectors = xling_jax.load(folder / "ours").encode(TEXTS)
        cells = [name, f"{difference(vectors, original(TEXTS)):.0e}"]
        for form in FORMS:
            try:
                EXPORTERS[form](folder / "ours", folder / form)
            except ValueError as error:
                cells.append(f"no: {str(error).partition(': ')[2]:.60}")
                continue
            found = vectors_of(form, folder / form, TEXTS)
            cells.append(f"{difference(found, vectors):.0e}")
    return cells


def main() -> None:
    """Prints a Markdown table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--families", nargs="+", choices=FAMILIES, default=[*FAMILIES])
    args = parser.parse_args()
    rows = [row(name) for name in args.families]
    print(f"{circumstances()}\n")
    print(markdown_table(("family", "in", *FORMS), rows))


if __name__ == "__main__":
    main()
