"""Exports as their libraries compute them; `benchmarks/conversion_differences.py` tries all."""

import contextlib
import re

import pytest

import xling_jax
from xling_jax.formats.registry import EXPORTERS

for package in ("onnx", "onnxruntime", "jax2onnx", "sentence_transformers", "model2vec", "torch"):
    pytest.importorskip(package)

from tests.formats import huggingface_reference  # noqa: E402
from tests.formats.every_family import TEXTS, difference  # noqa: E402
from xling_jax.formats.model2vec import convert_static  # noqa: E402


def vectors_of(form, path, texts):
    """Vectors of an export by the library that it is for; in onnxruntime by the card's script."""
    if form == "sentence-transformers":
        import sentence_transformers

        return sentence_transformers.SentenceTransformer(str(path), device="cpu").encode(texts)
    if form == "model2vec":
        import model2vec

        return model2vec.StaticModel.from_pretrained(path).encode(texts)
    (script,) = re.findall("```python\n(.*?)```", (path / "README.md").read_text(), re.DOTALL)
    names = {"sentences": texts}
    with contextlib.chdir(path):
        exec(re.sub(r"(?m)^sentences = .*", "", script), names)
    return names["vectors"]


def test_unknown_tokens_count_for_a_shorter_limit_of_model2vec(tmp_path):
    import model2vec

    path = huggingface_reference.save_model2vec(tmp_path / "m2v", "words")
    ours, short = tmp_path / "ours", tmp_path / "short"
    convert_static(path, ours, max_length_tokens=5)
    expected = model2vec.StaticModel.from_pretrained(path).encode(TEXTS, max_length=5)
    assert difference(xling_jax.load(ours).encode(TEXTS), expected) < 1e-4
    for form in ("onnx", "model2vec"):
        EXPORTERS[form](ours, tmp_path / form)
        assert difference(vectors_of(form, tmp_path / form, TEXTS), expected) < 1e-4
    # Shortened later, it counts known tokens, which no tokenizer does.
    xling_jax.load(ours).with_max_length(2).save(short)
    expected = xling_jax.load(short).encode(TEXTS)
    EXPORTERS["onnx"](short, tmp_path / "again")
    assert difference(vectors_of("onnx", tmp_path / "again", TEXTS), expected) < 1e-4
    with pytest.raises(ValueError, match="cuts texts at 2 tokens after unknown ones are dropped"):
        EXPORTERS["model2vec"](short, tmp_path / "refused")
