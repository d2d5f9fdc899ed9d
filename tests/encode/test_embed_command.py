import argparse
import gzip
import io
import json
import lzma
import os
import subprocess
import sys

import numpy as np
import pytest

import xling_jax
from xling_jax.cli import embed
from xling_jax.encode.texts import EncodeStats
from xling_jax.files.embeddings import read_embeddings
from xling_jax.options import OptionError

LINES = ["la mo ti", "", "ren su\u2028kel da", "  ", "\ufeffla", "né bor\r", "la mo ti"]


@pytest.fixture
def run(encoder, monkeypatch):
    """Runs the command in this process with the toy encoder."""
    monkeypatch.setattr(xling_jax, "load", lambda name, dtype=None: encoder)

    def run(*arguments):
        parser = argparse.ArgumentParser()
        embed.add_arguments(parser)
        embed.run(parser.parse_args(["--model", "m", *map(str, arguments)]))

    return run


@pytest.fixture
def text_file(tmp_path):
    path = tmp_path / "text.de"
    path.write_bytes("\n".join(LINES).encode() + b"\n")
    return path


def test_row_i_is_line_i_for_every_kind_of_file(run, encoder, text_file, tmp_path):
    data = text_file.read_bytes()
    zstandard = pytest.importorskip("zstandard")
    (tmp_path / "t.gz").write_bytes(gzip.compress(data))
    (tmp_path / "t.xz").write_bytes(lzma.compress(data))
    (tmp_path / "t.zst").write_bytes(zstandard.ZstdCompressor().compress(data))
    (tmp_path / "unended").write_bytes(data[:-1])
    expected = encoder.encode(LINES)
    for name in ("text.de", "t.gz", "t.xz", "t.zst", "unended"):
        run("--input", tmp_path / name, "--output", tmp_path / "out.npy", "--overwrite")
        np.testing.assert_allclose(np.load(tmp_path / "out.npy"), expected, atol=1e-5)


def test_options_of_the_vectors(run, encoder, text_file, tmp_path):
    prompted = encoder.encode([f"vi bor {line}" for line in LINES])
    for name, options, expected in (
        ("e.bin", "--format laser --normalize", encoder.encode(LINES, normalize=True)),
        ("e.npy", "--truncate-dim 3", encoder.encode(LINES)[:, :3]),
        ("f.npy", ["--prompt", "vi bor "], prompted),
    ):
        options = options.split() if isinstance(options, str) else options
        run("--input", text_file, "--output", tmp_path / name, *options)
        found = read_embeddings(tmp_path / name, dim=expected.shape[1])
        np.testing.assert_allclose(found, expected, atol=1e-5)
    with pytest.raises(OptionError, match="truncate_dim=17 must be from 1 to 16"):
        run("--input", text_file, "--output", tmp_path / "g.npy", "--truncate-dim", 17)


def test_half_floats_stream_and_are_read_back(run, encoder, text_file, tmp_path, monkeypatch):
    monkeypatch.setattr(type(encoder.backend), "window_sentences", 3)  # several chunks
    path = tmp_path / "e.npy"
    run("--input", text_file, "--output", path, "--precision", "float16")
    assert np.load(path).dtype == np.float16 and len(np.load(path)) == len(LINES)
    np.testing.assert_allclose(read_embeddings(path), encoder.encode(LINES), atol=1e-3)


@pytest.mark.parametrize(
    "wrong, complaint",
    [
        (("--shard", "1/2", "--input", "-"), "--input - is read twice; write it"),
        (("--precision", "float16", "--format", "laser"), "--format laser: is float32 only"),
        (("--prompt", "a", "--prompt-name", "b"), "only one of them"),
        (("--prompt-name", "b"), "^prompt_name='b' must be one of"),
    ],
)
def test_precisions_and_prompts_that_cannot_be_are_refused(
    run, text_file, tmp_path, wrong, complaint
):
    text = () if "--input" in wrong else ("--input", text_file)
    with pytest.raises(OptionError, match=complaint):
        run(*text, "--output", tmp_path / "e.npy", *wrong)
    assert [*tmp_path.iterdir()] == [text_file]
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OptionError, match="pipe is read twice; write it to a file"):
        run("--input", tmp_path / "pipe", "--output", tmp_path / "e.npy", "--shard", "1/2")


def test_counts_are_reported(run, encoder, text_file, tmp_path, caplog):
    with caplog.at_level("INFO"):
        run("--input", text_file, "--output", tmp_path / "e.npy")
    assert (
        "7 rows of 16, computed in float32; 7 sentences, 2 without text, 0 truncated to 40 tokens"
        in caplog.text
    )
    stats = EncodeStats()
    list(encoder.encode_stream(LINES, stats=stats))
    padding = 1 - stats.num_tokens / stats.num_padded_tokens
    assert f"sentences/s, {padding:.0%} padding" in caplog.text and 0.1 < padding < 0.9


def test_stdin_and_stdout(model_directory, text_file):
    code = (
        "import argparse, sys; from xling_jax.cli import embed; p = argparse.ArgumentParser();"
        "embed.add_arguments(p); embed.run(p.parse_args(sys.argv[1:]))"
    )
    command = [sys.executable, "-c", code, "--model", str(model_directory)]
    result = subprocess.run(
        [*command, "--input", "-", "--output", "-"],
        input=text_file.read_bytes(),
        capture_output=True,
        check=True,
    )
    assert np.load(io.BytesIO(result.stdout)).shape == (len(LINES), 16)


def test_an_empty_file_gives_no_rows_and_a_warning(run, tmp_path, encoder, caplog):
    (tmp_path / "empty").write_bytes(b"")
    run("--input", tmp_path / "empty", "--output", tmp_path / "e.npy")
    assert np.load(tmp_path / "e.npy").shape == (0, encoder.dim)
    assert "empty: the input is empty" in caplog.text


def test_documents_from_json_lines_and_from_plain_lines(run, encoder, tmp_path):
    half = "\ud83d"  # of an emoji
    documents = ["La mo. Ti ren.", ["la mo", "ti"], "la mo\ufffd. Su.", ["la mo", "\ufffd"], ""]
    records = [{"id": "1", "text": documents[0]}, {"id": "2", "sentences": documents[1]}]
    records += [{"text": f"la mo{half}. Su."}, {"sentences": ["la mo", half]}]
    jsonl = "\n".join(json.dumps(record) for record in records) + "\n\n"
    (tmp_path / "d.jsonl").write_text(jsonl)
    (tmp_path / "d.txt").write_text("La mo. Ti ren.\nla mo\n\n")
    output = ("--output", tmp_path / "e.npy", "--documents", "--overwrite")
    run("--input", tmp_path / "d.jsonl", *output)
    expected = encoder.encode_documents(documents)
    np.testing.assert_allclose(np.load(tmp_path / "e.npy"), expected, atol=1e-5)
    (tmp_path / "d.json").write_text("\n" + jsonl)  # known by its first line that is not blank
    run("--input", tmp_path / "d.json", *output)
    np.testing.assert_allclose(np.load(tmp_path / "e.npy")[1:], expected, atol=1e-5)
    run("--input", tmp_path / "d.txt", *output)
    expected = encoder.encode_documents([documents[0], "la mo", ""])
    np.testing.assert_allclose(np.load(tmp_path / "e.npy"), expected, atol=1e-5)


def test_sentences_of_a_document_are_its_lines(run, encoder, tmp_path):
    lines = [{"text": "Dr. La kelda.\nTi ren."}, {"sentences": ["Dr. La", "mo. ti"]}]
    (tmp_path / "d.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n\n")
    arguments = ("--output", tmp_path / "e.npy", "--documents", "--splitter", "lines")
    run("--input", tmp_path / "d.jsonl", *arguments)
    expected = encoder.encode_documents([["Dr. La kelda.", "Ti ren."], ["Dr. La", "mo. ti"], ""])
    np.testing.assert_allclose(np.load(tmp_path / "e.npy"), expected, atol=1e-5)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"la mo\n\0ti\n", r"^[^:]*text:2: (?!.*text:2)"),
        (b"la\n\xff\xfe\nmo\n", r"text:2: text must be UTF-8"),
        (b"la\n" + b"x" * 1_000_001 + b"\n", r"text:2: a line must be below 1,000,000 bytes"),
        (b'{"text": "la"}\n{\n', r"text:2: not valid JSON"),
        (b'\n[\n{"text": "la"}]\n', r"text:2: is a JSON array; write JSON lines with jq"),
        (b"\xef\xbb\xbf<?xml version='1.0'?>", r"text: is XML, not text; xling mine --pairs"),
        (b"%PDF-1.7\n", r"text: is PDF, not text"),
        (b'{"text": "la"}\n{"sentences": [1]}\n', r"text:2: a document must have 'text'"),
    ],
)
def test_a_broken_line_is_named_and_nothing_is_written(run, tmp_path, data, message):
    (tmp_path / "text").write_bytes(data)
    more = ["--documents"] if b"{" in data else []
    with pytest.raises(ValueError, match=message):
        run("--input", tmp_path / "text", "--output", tmp_path / "e.npy", *more)
    assert [path.name for path in tmp_path.iterdir()] == ["text"]


def test_wrong_use_is_refused_before_the_model_is_loaded(text_file, tmp_path, monkeypatch, run):
    monkeypatch.setattr(xling_jax, "load", lambda name, dtype=None: pytest.fail("loaded"))
    (tmp_path / "e.npy").write_bytes(b"precious")
    for name in ("d.jsonl.gz", "d.csv.gz"):
        (tmp_path / name).write_bytes(b"")
    same = text_file.parent / "." / "x" / ".." / text_file.name
    for message, *wrong in (
        (r"e\.npy: exists", "--output", tmp_path / "e.npy"),
        (r"--output .*: is also --input; choose another", "--output", same, "--overwrite"),
        ("--splitter: requires --documents", "--splitter", "rule"),
        ("d.jsonl.gz: is JSON lines; add --documents", "--input", tmp_path / "d.jsonl.gz"),
        ("d.csv.gz: is CSV; write one text a line", "--input", tmp_path / "d.csv.gz"),
        ("f.csv: .csv is not written; write .npy", "--output", tmp_path / "f.csv"),
        ("f.bin: .bin is not written; add --format laser", "--output", tmp_path / "f.bin"),
    ):
        text = () if "--input" in wrong else ("--input", text_file)
        with pytest.raises(OptionError, match=message):
            run(*text, "--output", tmp_path / "f.npy", *wrong)
    with pytest.raises(SystemExit):  # not the second one alone
        run("--input", text_file, "--input", same, "--output", tmp_path / "f.npy")
    assert (tmp_path / "e.npy").read_bytes() == b"precious"
