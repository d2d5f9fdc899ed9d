"""An encoder in JavaScript gives the vectors of Python: in Node, and in Chromium."""

import dataclasses
import functools
import http.server
import json
import shutil
import subprocess
import threading
import unicodedata

import numpy as np
import pytest

import xling_jax
from tests.browser import PHONE, look
from xling_jax.cli.main import main
from xling_jax.encode.model_directory import SHIPPED, load_model, save_changed

PROGRAM = """
const { readFileSync } = await import("node:fs");
const { Encoder } = await import("./encoder.js");
const encoder = await Encoder.load(".");
const texts = JSON.parse(readFileSync("texts.json", "utf8"));
console.log(JSON.stringify(encoder.encode(texts).map((vector) => [...vector])));
"""


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    path = tmp_path_factory.mktemp("web") / "mini"
    assert main(["export", "--to", "web", "--model", "mini", "--output", str(path)]) == 0
    (path / "package.json").write_text('{"type": "module"}')
    return path


def texts_of_all_scripts():
    """1,000 texts: every 100th character that Unicode has, words of each script, and traps."""
    random = np.random.default_rng(0)
    points = [c for c in range(0x30000) if unicodedata.category(chr(c)) not in ("Cn", "Co", "Cs")]
    scripts = {}
    for point in points:
        if chr(point).isalpha():
            scripts.setdefault(unicodedata.name(chr(point), "").split(" ")[0], []).append(point)
    scripts = [letters for letters in scripts.values() if len(letters) > 20]
    texts = ["".join(map(chr, points[i::100][:400])) for i in range(100)]
    texts += [
        "",
        "   ",
        "\ufeffa",
        "ΑΣ ΣΑΣ Σ",
        "İstanbul",
        "ﬁ ½ ㎏ ＡＢＣ ｶﾞ",
        "e\u0301 \u1e9e",
        "a" * 500,
    ]
    texts += [
        "\u1112\u1161\u11ab\u1100\u116e\u11a8",
        "x\u200dy\u00adz",
        "a\x1cb\x85c\u3000d",
        "\ud800",
    ]
    latin = ["the house", "das Haus", "l'été à Paris", "¿dónde está?", "perché no", "wo ist 42"]
    while len(texts) < 1000:
        letters = scripts[len(texts) % len(scripts)]
        words = ["".join(map(chr, random.choice(letters, random.integers(1, 9)))) for _ in range(4)]
        texts.append(" ".join(random.permutation([*words, *random.choice(latin, 3)])))
    return texts


def in_node(directory, texts):
    if not shutil.which("node"):
        pytest.skip("Node is not installed")
    (directory / "texts.json").write_text(json.dumps(texts))
    (directory / "try.mjs").write_text(PROGRAM)
    out = subprocess.run(["node", "try.mjs"], cwd=directory, capture_output=True, text=True)
    assert out.returncode == 0, out.stderr
    return np.array(json.loads(out.stdout))


def test_1000_texts_of_all_scripts_in_node(exported):
    texts = texts_of_all_scripts()
    expected = xling_jax.load("mini").encode(texts)
    np.testing.assert_allclose(in_node(exported, texts), expected, rtol=0, atol=1e-5)


def test_other_storages_and_widths(tmp_path):
    spec = load_model(SHIPPED["mini"])
    static = dataclasses.replace(spec.static, storage="float32")
    static, params = static.truncated(spec.params, 64)
    static, params = static.quantized(params, "int8")
    small, web = tmp_path / "small", tmp_path / "web"
    save_changed(
        small,
        spec,
        encoder_args=spec.config["encoder"]
        | {"storage": "int8", "width": 64, "feature_width": static.feature_width},
        params=params,
        max_length_tokens=8,
        prompts={"q": "query: "},
        default_prompt="q",
        truncate_dim=32,
        calibration=None,
    )
    assert main(["export", "--to", "web", "--model", str(small), "--output", str(web)]) == 0
    (web / "package.json").write_text('{"type": "module"}')
    texts = ["Where is the train station?", "Wo ist der Bahnhof, von dem der Zug abfährt?", ""]
    expected = xling_jax.load(small).encode(texts)
    assert expected.shape == (3, 32)
    np.testing.assert_allclose(in_node(web, texts), expected, rtol=0, atol=1e-5)


@pytest.mark.slow
def test_the_page_in_chromium(exported, chromium):
    texts = ["Where is the train station?", "Wo ist der Bahnhof?", "日本 Ελλάδα", ""]
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=exported)
    handler.log_message = lambda *_: None
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        look(chromium, PHONE, "light")
        chromium.get(f"http://127.0.0.1:{server.server_port}/")
        vectors = chromium.execute_async_script(
            "const [texts, done] = arguments; import('./encoder.js').then(async ({ Encoder }) =>"
            " done((await Encoder.load('.')).encode(texts).map((vector) => [...vector])))",
            texts,
        )
        first = chromium.execute_script("return document.querySelector('li').innerText")
        width = chromium.execute_script("return document.documentElement.scrollWidth")
        server.shutdown()
    np.testing.assert_allclose(vectors, xling_jax.load("mini").encode(texts), rtol=0, atol=1e-5)
    assert "Wo ist der Bahnhof?" in first
    assert width <= PHONE
    assert chromium.get_log("browser") == []


def test_what_browsers_do_not_compute_is_refused(tmp_path, capsys):
    large = tmp_path / "large"
    floats = ["--model", "mini", "--storage", "float32", "--truncate-dim", "8"]
    assert main(["export", *floats, "--output", str(large)]) == 0
    web = ["export", "--to", "web", "--output", str(tmp_path / "web"), "--model", str(large)]
    assert main(web) == 2
    assert "xling export --storage int8 first" in capsys.readouterr().err
