"""Damaged files: bytes changed at random, and by name each kind that once went wrong."""

import ast
import io
import json
import random
import resource
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from tests.hostile.samples import SAMPLES, laser_checkpoints, npy, vocab
from xling_jax.corpora.specs import read_corpus
from xling_jax.files.lines import BrokenLine

OF_TORCH = ("laser", "huggingface")
PACKAGE = Path(__file__).parents[2] / "xling_jax"
_FORBIDDEN = {"pickle", "_pickle", "cPickle", "marshal", "shelve", "dill", "cloudpickle", "joblib"}
_SAFE_LOADS = {"np.load": {"allow_pickle": "False"}, "torch.load": {"weights_only": "True"}}
_BYTES = [b"", b"\t", b"\n", b"\r", b"\0", b"\xff", b"\xed\xa0\x80", b"\xc3", b"1e999", b"-1"]
_BYTES += [b"\xef\xbb\xbf", b"\xe2\x80\xa8", b"\x85", b'"', b"<", b"&", b"[" * 3000, b"\\ud800"]


def write(directory, files):
    for name, content in files.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_bytes(content)


def refusal(name, directory):
    """Reads a directory; returns "", or the error: one short line that names a file."""
    try:
        SAMPLES[name].read(directory)
        return ""
    except (ValueError, OSError) as error:
        line = str(error)
        if isinstance(error, OSError) and error.filename is not None and error.strerror:
            line = f"{error.filename}: {error.strerror}"
    assert "\n" not in line and len(line) < 1500
    assert any(path.name in line for path in (directory, *directory.rglob("*"))), line
    return line.replace(f"{directory}/", "")


def refused(name, directory, files):
    """Writes files and reads them; returns the line that refuses them."""
    write(directory, files)
    assert (line := refusal(name, directory)), "it was read"
    return line


def damaged(rng, content):
    """Content of which bytes are flipped, cut off, inserted, deleted, repeated or noise."""
    start = rng.randrange(len(content) + 1)
    end = start + rng.choice([1, 1, 2, 4, 8, 50, 1000])
    before, middle, after = content[:start], content[start:end], content[end:]
    flipped = bytes(byte ^ 1 << rng.randrange(8) for byte in middle[:2]) + middle[2:]
    inserted = rng.choice(_BYTES) + middle
    noise = rng.randbytes(len(middle))
    middle = rng.choice([flipped, flipped, inserted, inserted, b"", middle * 3, noise])
    return before if rng.random() < 0.15 else before + middle + after


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=pytest.mark.slow if n in OF_TORCH else ()) for n in SAMPLES],
)
def test_files_damaged_at_random_are_read_or_refused_in_one_line(name, tmp_path):
    if name in OF_TORCH:
        pytest.importorskip("transformers")
    rng, files = random.Random(zlib.crc32(name.encode())), SAMPLES[name].files()
    for number in range(4 if len(files) > 3 or name in OF_TORCH else 40):
        chosen = rng.choice(sorted(files))
        directory = tmp_path / str(number)
        write(directory, {**files, chosen: damaged(rng, files[chosen])})
        refusal(name, directory)
    write(tmp_path / "whole", files)
    assert not refusal(name, tmp_path / "whole")


def test_of_damaged_text_all_lines_are_read_and_those_that_are_none_are_marked(tmp_path):
    def plain(line):
        try:
            return None if b"\0" in line else line.decode("utf-8").removesuffix("\r")
        except UnicodeDecodeError:
            return None

    rng, (content,) = random.Random(0), SAMPLES["lines"].files().values()
    for _ in range(100):
        (tmp_path / "a.txt").write_bytes(changed := damaged(rng, content))
        found = SAMPLES["lines"].read(tmp_path)
        expected = changed.removeprefix(b"\xef\xbb\xbf").removesuffix(b"\n").split(b"\n")
        lines = [None if isinstance(line, BrokenLine) else line for line in found]
        assert lines == [plain(line) for line in expected] or not changed


# TMX.

_UNIT = '<tu>{}<tuv xml:lang="en"><seg>yes</seg></tuv></tu>'
_GERMAN = '<tuv xml:lang="de"><seg>{}</seg></tuv>'
_TMX = f"{{}}<tmx><body>{_UNIT.format(_GERMAN)}</body></tmx>"


def read_tmx(directory, content):
    (directory / "a.tmx").write_bytes(content)
    return [row.texts for row in read_corpus(f"tmx:{directory}/a.tmx", ("de", "en"))]


@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-8"])
def test_utf_16_is_read_with_and_without_a_mark(tmp_path, encoding, mark):
    head = f'{mark}<?xml version="1.0" encoding="{encoding}"?>'
    content = _TMX.format(head, "tschüß").encode(encoding)
    assert read_tmx(tmp_path, content) == [{"de": "tschüß", "en": "yes"}]


def test_a_declared_latin_1_is_read_and_broken_bytes_of_ascii_are_a_problem(tmp_path):
    latin = _TMX.format('<?xml version="1.0" encoding="iso-8859-1"?>', "tschüß").encode("latin-1")
    assert read_tmx(tmp_path, latin) == [{"de": "tschüß", "en": "yes"}]
    two = latin.replace(b"<body>", b"<body>" + _UNIT.format("").encode())
    good = _TMX.format("", "ja").partition("<body>")[2].partition("</body>")[0].encode()
    content = two.replace(b"iso-8859-1", b"us-ascii").replace(b"</body>", good + b"</body>")
    assert read_tmx(tmp_path, content) == [{"en": "yes"}, {}, {"de": "ja", "en": "yes"}]


@pytest.mark.parametrize(
    "encoding", ["utf-16", "zlib", "hex", "rot13", "undefined", "idna", "cp037"]
)
def test_an_encoding_that_is_not_that_of_the_file_is_refused(tmp_path, encoding):
    head = f'<?xml version="1.0" encoding="{encoding}"?>'
    line = refused("tmx", tmp_path, {"a.tmx": _TMX.format(head, "ja ü").encode()})
    assert line.startswith("a.tmx:1: ") or line.startswith("a.tmx: is not in the encoding")


@pytest.mark.parametrize(
    ("doctype", "text", "message"),
    [
        ('<!DOCTYPE tmx [<!ENTITY x "inner">]>', "&x;", "entity 'x' is declared"),
        ('<!DOCTYPE tmx [<!ENTITY x SYSTEM "/etc/passwd">]>', "&x;", "entity 'x' is declared"),
        ('<!DOCTYPE tmx SYSTEM "tmx14.dtd">', "a&nbsp;b", "entity 'nbsp' is unknown"),
        ("", "a&nbsp;b", "undefined entity"),
        ("", "a<seg>b</seg>c", "<seg> is inside another"),
        ("", "a</seg></tuv><tu></tu><tuv><seg>", "<tu> is inside another"),
        ("", 'a</seg><tuv xml:lang="en"><seg>b</seg></tuv><seg>', "<tuv> is inside another"),
        ("", "&#" + "1" * 5000 + ";", "not well-formed"),
    ],
)
def test_what_would_lose_or_mix_text_is_refused(tmp_path, doctype, text, message):
    line = refused("tmx", tmp_path, {"a.tmx": _TMX.format(doctype, text).encode()})
    assert line.startswith("a.tmx:1: ") and message in line


def test_a_variant_outside_a_unit_changes_no_row(tmp_path):
    stray = '</tu><tuv xml:lang="de"><seg>stray</seg></tuv><tu>'
    content = _TMX.format("", "ja").replace("<body>", f"<body>{_UNIT.format('')}")
    content = content.replace("</tu><tu>", stray, 1).encode()
    assert read_tmx(tmp_path, content) == [{"en": "yes"}, {"de": "ja", "en": "yes"}]


# Archives, JSON, arrays.


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        (8, b"\x01\x00", "encrypted"),
        (10, b"\x0c\x00", "Invalid data stream"),
        (10, b"\xff\xff", "compression method is not supported"),
        (16, b"\xff\xff", "Bad CRC-32"),
        (24, b"\xff\xff\xff\xff", "bytes; must be at most"),
    ],
)
def test_members_of_wheels_that_cannot_be_read_are_named(tmp_path, field, value, message):
    (name,), (wheel,) = zip(*SAMPLES["gettext"].files().items())
    at = wheel.index(b"PK\x01\x02") + field
    wheel = wheel[:at] + value + wheel[at + len(value) :]
    line = refused("gettext", tmp_path, {name: wheel})
    assert line.startswith(f"{name}!p/locale/de/LC_MESSAGES/a.po: ") and message in line


@pytest.mark.parametrize("text", [b"[" * 100_000, b'{"a": ' + b"1" * 5000 + b"}", b'"\xff"'])
@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("report", "run/results.json"),
        ("report", "run/config.json"),
        ("documents", "s.jsonl"),
        ("prepared data", "data/manifest.json"),
        ("model directory", "m/config.json"),
    ],
)
def test_json_nested_too_deeply_or_of_huge_numbers_is_refused(tmp_path, name, file, text):
    files = SAMPLES[name].files()
    line = refused(name, tmp_path, {**files, file: text})
    assert Path(file).name in line or "no finished data" in line


@pytest.mark.parametrize(
    "header",
    [
        "{'descr': '|O', 'fortran_order': False, 'shape': (12, 8)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (-12, -8)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (10**18, 8)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (True, 8)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000, 8)}",
        "(" * 60_000,
        "__import__('os').getpid()",
    ],
)
def test_headers_of_arrays_that_lie_or_ask_for_objects_are_refused(tmp_path, header):
    text = header.encode() + b"\n"
    array = b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + bytes(384)
    assert "t.de.npy" in refused("embeddings", tmp_path, {"t.de.npy": array})


# Prepared data.


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        ("de.offsets", lambda array: array[::-1].copy(), "tokens and offsets of de do not match"),
        ("de.offsets", lambda array: np.append(array[:1], array[2:]), "rows on one side"),
        ("de.offsets", lambda array: array.astype(np.float64), "found float64"),
        ("en.tokens", lambda array: array.reshape(1, -1), "found uint16 [1, "),
        ("en.tokens", lambda array: array + np.uint16(60_000), "the vocabulary has 80"),
    ],
)
def test_shards_that_would_give_wrong_rows_are_refused(tmp_path, file, change, message):
    files = SAMPLES["prepared data"].files()
    name = f"data/de-en/00000/{file}.npy"
    array = np.load(io.BytesIO(files[name]), allow_pickle=False)
    damaged = {**files, name: npy(change(array))}
    assert "its content is not what was written" in refused(
        "prepared data", tmp_path / "a", damaged
    )
    # As an earlier version prepared it, without hashes.
    record = "data/de-en/00000.json"
    damaged[record] = json.dumps(
        json.loads(files[record]) | {"hashes": None, "seal": None}
    ).encode()
    assert message in refused("prepared data", tmp_path / "b", damaged)


# Models.


@pytest.mark.parametrize(
    ("name", "size"),
    [("layers", 10**9), ("width", 10**12), ("vocab_size", 10**18), ("ffn_width", 2**64)],
)
def test_sizes_beyond_the_parameters_are_refused_before_a_model_is_built(tmp_path, name, size):
    files = SAMPLES["model directory"].files()
    config = json.loads(files["m/config.json"])
    config["encoder"][name] = size
    changed = {**files, "m/config.json": json.dumps(config).encode()}
    line = refused("model directory", tmp_path, changed)
    assert line.startswith(f"m/config.json: encoder.{name}={size} must be that of encoder.safet")


def test_checkpoints_made_by_hand_run_nothing_and_allocate_nothing(tmp_path):
    pytest.importorskip("torch")
    whole, legacy, *by_hand = laser_checkpoints()
    peak_kb = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for number, content in enumerate([whole, legacy, *by_hand]):
        before = peak_kb()
        write(tmp_path / str(number), {"l.pt": content, "l.spm": vocab().model_bytes})
        line = refusal("laser", tmp_path / str(number))
        assert number > 1 or not line, line
        assert number < 2 or peak_kb() - before < 500_000, line


def test_a_flipped_bit_in_a_checkpoint_is_found_by_its_check_sum(tmp_path):
    pytest.importorskip("torch")
    checkpoint = bytearray(laser_checkpoints()[0])
    with zipfile.ZipFile(io.BytesIO(checkpoint)) as archive:
        (info,) = (info for info in archive.infolist() if info.filename.endswith("data/0"))
    checkpoint[info.header_offset + 200] ^= 1
    files = {"l.pt": bytes(checkpoint), "l.spm": vocab().model_bytes}
    assert "is damaged: checksum of " in refused("laser", tmp_path, files)


@pytest.mark.exhaustive
def test_shards_outside_the_directory_are_refused(tmp_path):
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    files = dict(SAMPLES["huggingface"].files())
    (weights,) = (name for name in files if name.endswith(".safetensors"))
    names = safetensors.numpy.load(files.pop(weights))
    index = {"weight_map": dict.fromkeys(names, "../outside.safetensors")}
    line = refused(
        "huggingface", tmp_path, {**files, f"{weights}.index.json": json.dumps(index).encode()}
    )
    assert "'../outside.safetensors' must be the name of a file here" in line


# Nothing that runs code.


def test_no_module_reads_or_writes_pickles():
    wrong = []
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
            wrong += [f"{path}: {n}" for n in names if n.split(".")[0] in _FORBIDDEN]
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            call = ast.unparse(node.func)
            given = {word.arg: ast.unparse(word.value) for word in node.keywords}
            if call in _SAFE_LOADS and not _SAFE_LOADS[call].items() <= given.items():
                wrong.append(f"{path}:{node.lineno}: {call} must have {_SAFE_LOADS[call]}")
            if call.endswith("_pickle") or given.get("allow_pickle") == "True":
                wrong.append(f"{path}:{node.lineno}: {call}")
    assert not wrong
