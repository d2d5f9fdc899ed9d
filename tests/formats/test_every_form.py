"""Every encoder in every form: our vectors for any text, to 1e-4, or a refusal in one line."""

import contextlib
import re

import pytest

import xling_jax
from xling_jax.formats.registry import EXPORTERS

for package in ("onnx", "onnxruntime", "jax2onnx", "sentence_transformers", "model2vec", "torch"):
    pytest.importorskip(package)

from tests.formats import huggingface_reference  # noqa: E402
from tests.formats.every_family import FAMILIES, TEXTS, difference  # noqa: E402
from xling_jax.formats.model2vec import convert_static  # noqa: E402

NO_LAYERS = "is of family (bert|rotary); model2vec has no layers; use --to onnx or"
# Family -> why sentence-transformers cannot hold it; the others it can.
OTHER = "encoders of family (rotary|static|laser) do not exist in sentence-transformers; use --to "
REFUSED = {
    **dict.fromkeys(
        (
            *("ModernBERT", "mmBERT", "Qwen3", "EmbeddingGemma", "Gemma 3, causal", "GTE"),
            *("sentence-transformers, Qwen3", "LASER2"),
            *(name for name in FAMILIES if name.startswith(("Static", "model2vec"))),
        ),
        OTHER,
    ),
    "XLM": "tokenizer.json has no form for a HuggingFaceVocab",
}
# And model2vec.
REFUSED_BY_MODEL2VEC = {
    name: NO_LAYERS for name in FAMILIES if not name.startswith(("Static", "model2vec"))
}
REFUSED_BY_MODEL2VEC["LASER2"] = "is of family laser; model2vec has no"
REFUSED_BY_MODEL2VEC |= dict.fromkeys(
    ("StaticEmbedding, unigram", "StaticEmbedding, WordPiece"), "keeps truncate_dim=12 dimensions"
)
BY_FORM = {"onnx": {}, "sentence-transformers": REFUSED, "model2vec": REFUSED_BY_MODEL2VEC}


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


REPRESENTATIVE = {"BERT", "XLM", "Qwen3", "StaticEmbedding, unigram", "model2vec, WordPiece"}


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(name, marks=() if name in REPRESENTATIVE else pytest.mark.exhaustive)
        for name in FAMILIES
    ],
)
def converted(request, family):
    """A family, its model directory, and its vectors."""
    folder, _ = family(request.param)
    return request.param, folder / "ours", xling_jax.load(folder / "ours").encode(TEXTS)


@pytest.mark.exhaustive
@pytest.mark.parametrize("form", BY_FORM)
def test_vectors_are_ours_or_the_form_is_refused(converted, tmp_path, form):
    name, directory, expected = converted
    if message := BY_FORM[form].get(name):
        with pytest.raises(ValueError, match=message) as error:
            EXPORTERS[form](directory, tmp_path / "out")
        assert "\n" not in str(error.value) and not (tmp_path / "out").exists()
        return
    EXPORTERS[form](directory, tmp_path / "out")
    assert difference(vectors_of(form, tmp_path / "out", TEXTS), expected) < 1e-4


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
