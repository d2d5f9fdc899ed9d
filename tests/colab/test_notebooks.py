"""Every notebook runs from top to bottom in its small form, on text made here.

Without network: the wheels that a notebook would fetch lie there already. Without TensorFlow.
"""

import base64
import io
import json
import os
import re
import shutil
import sys
from pathlib import Path

import pytest
from matplotlib import image

from tests.colab.small_wheels import write_wheels

ROOT = Path(__file__).parents[2]
NOTEBOOKS = {path.stem: path for path in sorted((ROOT / "colab").glob("*.ipynb"))}
# Where each has its wheels fetched to.
WHEELS = {"quickstart": "runs/quickstart/wheels"}
# Cells that show the pictures a notebook is about.
PICTURES = {
    "align_documents": ["picture"],
    "mine_bitext": ["picture"],
    "quickstart": ["retrieval-matrix", "retrieval-projection", "draw-heatmap"],
    "train_your_languages": ["curves", "matrix"],
    "zero_shot_classification": ["picture"],
}
# A module that is None cannot be imported and is not found; every Python process begins with this.
NO_TENSORFLOW = "import sys\nsys.modules.update(tensorflow=None, tensorflow_datasets=None)\n"


def read(name):
    return json.loads(NOTEBOOKS[name].read_text(encoding="utf-8"))


def source(name):
    return "\n".join("".join(cell["source"]) for cell in read(name)["cells"])


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """The part of a checkout that notebooks see, and the environment that they run in."""
    shutil.copytree(ROOT / "configs", tmp_path / "configs")
    (tmp_path / "site").mkdir()
    (tmp_path / "site/sitecustomize.py").write_text(NO_TENSORFLOW)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path / 'site'}{os.pathsep}{ROOT}")
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("XLING_SMALL", "1")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "jupyter"))
    monkeypatch.delenv("MPLBACKEND", raising=False)  # the kernel's own shows pictures
    return tmp_path


def execute(name, checkout):
    """Runs a notebook as committed; returns the outputs of its code cells by id."""
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    directory = checkout / "colab"
    wheels = directory / WHEELS.get(name, "wheels")
    wheels.mkdir(parents=True)
    write_wheels(wheels, checkout / "configs/quickstart_wheels.txt")
    notebook = nbformat.read(NOTEBOOKS[name], as_version=4)
    nbformat.validate(notebook)
    client = nbclient.NotebookClient(
        notebook, timeout=900, kernel_name="python3", resources={"metadata": {"path": directory}}
    )
    try:
        client.execute()
    finally:
        outputs = {c["id"]: c["outputs"] for c in notebook.cells if c.cell_type == "code"}
        print("".join(map(printed, outputs.values())))  # for the reader of a failure
    return outputs


def printed(outputs):
    return "".join(output.get("text", "") for output in outputs)


def pictures(outputs):
    """Decodes the pictures shown, each [height, width, channels]."""
    shown = [output.get("data", {}).get("image/png") for output in outputs]
    return [image.imread(io.BytesIO(base64.b64decode(png))) for png in shown if png]


def check_mining(directory, outputs):
    found, precision = re.search(r"(\d+) pairs, ([\d.]+)% of", printed(outputs["measure"])).groups()
    assert int(found) > 50 and float(precision) > 90
    assert len((directory / "pairs.tsv").read_text().splitlines()) == int(found)


def check_documents(directory, outputs):
    pattern = r"(\d+) units: (\d+)% are right \(precision\), (\d+)% of all"
    units, precision, recall = map(int, re.search(pattern, printed(outputs["measure"])).groups())
    assert units >= 15 and precision >= 90 and recall >= 80
    assert (directory / "corpus.tmx").read_text().count("<tu>") == units


def check_quickstart(directory, outputs):
    _, *translations, other = map(
        float, re.findall(r"^ *(-?\d\.\d+) ", printed(outputs["mini"]), re.M)
    )
    assert min(translations) > 0.6 and other < 0.3
    assert "(25, 32) float32" in printed(outputs["encode"])


# The text is simple enough to learn in seconds, except for the quickstart's own model.
LEARNT = {
    "align_documents": check_documents,
    "mine_bitext": check_mining,
    "quickstart": check_quickstart,
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_notebook_runs_to_its_end_and_shows_its_pictures(name, checkout):
    outputs = execute(name, checkout)
    # A command that fails does not stop a notebook.
    failed = re.findall("xling .*error:.*", "".join(map(printed, outputs.values())))
    assert not failed
    for cell in PICTURES[name]:
        (picture,) = pictures(outputs[cell])
        height, width, _ = picture.shape
        assert height >= 200 and width >= 400 and picture.std() > 0.05
    LEARNT.get(name, lambda *_: None)(checkout / "colab", outputs)


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_notebook_is_committed_clean(name):
    notebook = read(name)
    text = NOTEBOOKS[name].read_text(encoding="utf-8")
    assert text == json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    assert set(notebook["metadata"]) == {"kernelspec", "language_info"}
    ids = [cell["id"] for cell in notebook["cells"]]
    assert len(set(ids)) == len(ids)
    for cell in notebook["cells"]:
        assert isinstance(cell["source"], list) and cell["source"]
        assert set(cell["metadata"]) <= {"tags"}
        if cell["cell_type"] == "code":
            assert cell["outputs"] == [] and cell["execution_count"] is None
    tagged = [cell["id"] for cell in notebook["cells"] if cell["metadata"].get("tags")]
    assert tagged == ["parameters"]


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_every_notebook_begins_with_the_same_installation(name):
    first = {n: next(c for c in read(n)["cells"] if c["cell_type"] == "code") for n in NOTEBOOKS}
    assert first[name]["source"] == first["quickstart"]["source"]


def test_all_notebooks_are_there():
    assert set(NOTEBOOKS) == set(PICTURES)
