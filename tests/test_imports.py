"""Which part of the library may import which."""

import ast
import importlib
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "xling_jax"
ROOMS = {"adapters", "align", "corpora", "documents", "encode", "eval", "files", "losses", "models"}
ROOMS |= {"formats", "papers", "report", "runs", "serve", "text", "train"}
# What every room may use; of these each may use those before it.
FOUNDATION = (
    "version",
    "registry",
    "options",
    "devices",
    "files",
    "text",
    "sharding",
    "kernels",
    "products",
)
# Another room and the rooms below it that it may use.
ALLOWED = {
    "losses": set(),
    "papers": set(),
    "models": set(),
    "align": set(),
    "corpora": set(),
    "documents": {"align"},
    "encode": {"align", "models"},
    "formats": {"encode", "models"},
    "train": {"corpora", "losses", "models"},
    "eval": {"align", "corpora", "documents", "encode"},
    "report": {"encode", "eval"},
    "serve": {"align", "documents", "encode"},
    "runs": {"corpora", "encode", "eval", "models", "train"},
    "cli": {*ROOMS, "config"} - {"losses", "adapters"},
    "config": {"corpora", "encode", "eval", "models", "train"},
    "adapters": set(),
    "sklearn": {"encode"},
    "mteb": {"encode"},
    "__init__": {"align", "encode"},
}
TENSORFLOW = {"tensorflow", "tensorflow_datasets"}


MODULES = sorted(PACKAGE.rglob("*.py"))


def is_module(name):
    path = ROOT.joinpath(*name.split("."))
    return path.is_dir() or path.with_suffix(".py").is_file()


def imported(path, in_functions=True):
    """Names of the modules a file imports; of its own package also those under `from … import`."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree) if in_functions else tree.body:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports must be absolute"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (name if is_module(name) else node.module for name in names)


def test_imports_follow_the_arrows():
    wrong = []
    for path in MODULES:
        room = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        if room in FOUNDATION:
            rooms = {room, *FOUNDATION[: FOUNDATION.index(room)]}
        else:
            rooms = {room, *ALLOWED[room], *FOUNDATION}
        for name in imported(path):
            target = f"{name.removeprefix('xling_jax.')}."
            allowed = any(target.startswith(f"{other}.") for other in rooms)
            if name.startswith("xling_jax.") and not allowed:
                wrong.append(f"{path.relative_to(ROOT)} imports {name}")
    assert not wrong


def test_tensorflow_is_imported_in_functions_of_the_corpus_readers_only():
    for path in MODULES:
        assert "tensorflow" not in {n.split(".")[0] for n in imported(path, in_functions=False)}
        if TENSORFLOW & {name.split(".")[0] for name in imported(path)}:
            relative = path.relative_to(PACKAGE).as_posix()
            assert relative.startswith(("train/batches", "corpora/readers", "corpora/tfds"))


def test_configs_import_the_config_module_and_one_another_only():
    allowed = {"xling_jax.config", "xling_jax.configs"}
    allowed |= {"xling_jax.registry"}  # to refuse an argument with the known ones
    for path in (ROOT / "configs").glob("*.py"):
        names = {name for name in imported(path) if name.startswith("xling_jax")}
        assert {name for name in names if not name.startswith("xling_jax.configs.")} <= allowed


def test_scripts_import_what_there_is_and_call_it_with_arguments_that_it_takes():
    """No other test runs all of them."""
    for path in [p for top in ("benchmarks", "lab", "launch") for p in (ROOT / top).rglob("*.py")]:
        tree, known = ast.parse(path.read_text()), {}
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module.partition(".")[0] == "xling_jax":
                module = importlib.import_module(node.module)
                for alias in node.names:
                    where = f"{path.name}:{node.lineno}: {node.module} has no {alias.name}"
                    found = hasattr(module, alias.name)
                    assert found or is_module(f"{node.module}.{alias.name}"), where
                    if not found:
                        importlib.import_module(f"{node.module}.{alias.name}")
                    known[alias.asname or alias.name] = getattr(module, alias.name)
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and (function := called(node.func, known, path.name)):
                check_call(node, function, f"{path.name}:{node.lineno}")


def called(function, known, where):
    """What a call is to, if it is something imported or in a module imported."""
    if isinstance(function, ast.Name):
        return known.get(function.id)
    if not isinstance(function, ast.Attribute) or not isinstance(function.value, ast.Name):
        return None
    holder = known.get(function.value.id)
    if inspect.ismodule(holder):
        assert hasattr(holder, function.attr), f"{where}:{function.lineno}: no {function.attr}"
    return getattr(holder, function.attr, None)


def check_call(node, function, where):
    starred = any(isinstance(value, ast.Starred) for value in node.args)
    named = {keyword.arg: None for keyword in node.keywords}
    if not callable(function) or starred or None in named:
        return
    try:
        signature = inspect.signature(function)
    except ValueError:  # of C
        return
    try:
        signature.bind(*node.args, **named)
    except TypeError as error:
        pytest.fail(f"{where}: {error}")


def loaded_by(statement):
    """Top-level packages that a fresh interpreter holds after a statement."""
    program = f"import sys; {statement}; print(*sorted({{n.split('.')[0] for n in sys.modules}}))"
    out = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert out.returncode == 0, out.stderr
    return set(out.stdout.split())


def test_importing_the_package_pulls_in_neither_jax_nor_tensorflow():
    assert not loaded_by("import xling_jax") & {"jax", "flax", "numpy", *TENSORFLOW}


def test_the_encoder_imports_no_jax_before_it_needs_a_device():
    assert not loaded_by("import xling_jax.encode.encoder") & {"jax", "flax"}


def test_training_and_encoding_import_no_tensorflow():
    loaded = loaded_by("import xling_jax.train.loop, xling_jax.encode.encoder")
    assert "jax" in loaded
    assert not loaded & TENSORFLOW


def test_importing_every_module_starts_no_device_and_configures_no_logger():
    names = [
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for path in MODULES
        if path.name != "__main__.py"
        and path.stem not in ("tfds_builders", "onnx_graphs")
        and path.parent.name != "adapters"
    ]
    check = (
        "import logging; from jax._src import xla_bridge; "
        "assert not xla_bridge.backends_are_initialized(), 'a device was started'; "
        "assert not logging.getLogger('xling_jax').handlers"
    )
    assert not loaded_by(f"import {', '.join(names)}; {check}") & {"tensorflow"}
