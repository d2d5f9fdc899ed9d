"""Text from stdin, in processes of its own."""

import os
import socket
import subprocess
import sys

CODE = "from xling_jax.files.lines import iterate_lines; print(list(iterate_lines('-')))"


def read(stdin) -> str:
    """What a process reads from its stdin."""
    command = [sys.executable, "-c", CODE]
    done = subprocess.run(command, stdin=stdin, capture_output=True, text=True, check=False)
    return done.stdout.strip() or done.stderr.strip().splitlines()[-1]


def test_stdin_is_read_from_where_it_stands(tmp_path):
    (tmp_path / "text").write_text("header\nfirst\nsecond\n")
    with open(tmp_path / "text", "rb") as file:
        os.read(file.fileno(), len("header\n"))
        assert read(file) == "['first', 'second']"


def test_stdin_may_be_a_socket():
    ours, theirs = socket.socketpair()
    with theirs:
        with ours:
            ours.sendall(b"one\ntwo\n")
        assert read(theirs) == "['one', 'two']"


def test_closed_stdin_is_named():
    done = subprocess.run(
        ["sh", "-c", f'"{sys.executable}" -c "{CODE}" <&-'],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr.strip().splitlines()[-1].endswith("is closed: 'stdin'")
