"""LASER3 and SONAR's text encoder against their equations in PyTorch, with made-up weights."""

import argparse

import numpy as np
import pytest

import xling_jax
from xling_jax.cli.main import main
from xling_jax.encode.model_directory import load_model
from xling_jax.formats import fairseq
from xling_jax.formats.laser import convert_laser
from xling_jax.formats.registry import EXPORTERS
from xling_jax.text.vocab import train_vocab

torch = pytest.importorskip("torch")

from tests.formats import laser_reference as reference  # noqa: E402

TEXTS = ["la mo ti", "", "Ren su KEL „la“", "né ☃ ti la mo vi da ren " * 4]
CFG = {
    "encoder_attention_heads": 2,
    "encoder_normalize_before": False,
    "sentemb_criterion": "cls",
    "prepend_bos": True,
    "left_pad_source": False,
}
FAIRSEQ = {ours: names[0] for ours, names in fairseq._LAYER.items()}
FAIRSEQ2 = {ours: names[1] for ours, names in fairseq._LAYER.items()}


def make(names, rows, width, layers, embedding, prefix, last_norm):
    """Random tensors of an encoder in the names of a library."""
    generator = torch.Generator().manual_seed(0)
    draw = lambda *shape: torch.randn(shape, generator=generator) * 0.3
    tensors = {embedding: draw(rows, width)}
    norms = ["layer_norm"] if last_norm else []
    for number in range(layers):
        for ours, name in names.items():
            name = f"{prefix}.{number}.{name}"
            if ours.endswith("norm"):
                norms.append(name)
                continue
            outputs = 2 * width if ours == "ffn/inner" else width
            inputs = 2 * width if ours == "ffn/outer" else width
            tensors |= {f"{name}.weight": draw(outputs, inputs), f"{name}.bias": draw(outputs)}
    for name in norms:
        tensors |= {f"{name}.weight": 1 + draw(width), f"{name}.bias": draw(width)}
    return tensors


def states(tensors, names, ids, embedding, prefix, heads, pre):
    """States [length, width] of one sentence in float64: the transformer of Vaswani et al."""
    get = lambda name: tensors[name].double()
    table = get(embedding)
    width = table.shape[1]
    rates = torch.exp(torch.arange(width // 2) * -(np.log(10000) / (width // 2 - 1)))
    # fairseq counts positions from the id of padding, 1, plus 1.
    angles = (2 + torch.arange(len(ids))).double()[:, None] * rates.double()
    x = table[ids] * width**0.5 + torch.cat([angles.sin(), angles.cos()], 1)
    norm = lambda x, name: torch.nn.functional.layer_norm(
        x, (width,), get(f"{name}.weight"), get(f"{name}.bias")
    )

    def layer(x, start):
        name = lambda ours: f"{start}.{names[ours]}"
        dense = lambda x, ours: x @ get(f"{name(ours)}.weight").T + get(f"{name(ours)}.bias")

        def attention(x):
            query, key, value = (
                dense(x, f"attention/{part}").view(len(x), heads, -1).transpose(0, 1)
                for part in ("query", "key", "value")
            )
            weights = (query @ key.transpose(1, 2) / (width // heads) ** 0.5).softmax(-1)
            return dense((weights @ value).transpose(0, 1).reshape(x.shape), "attention/output")

        ffn = lambda x: dense(dense(x, "ffn/inner").relu(), "ffn/outer")
        for block, own in ((attention, "attention_norm"), (ffn, "ffn_norm")):
            x = x + block(norm(x, name(own))) if pre else norm(x + block(x), name(own))
        return x

    for number in range(2):
        x = layer(x, f"{prefix}.{number}")
    return norm(x, "layer_norm") if "layer_norm.weight" in tensors else x


@pytest.fixture(scope="module")
def laser3(tmp_path_factory, sentences):
    """Writes the files of an encoder with other options; gives the checkpoint and its tensors."""

    def write(last_norm=True, prefix="", **options):
        top = tmp_path_factory.mktemp("laser3")
        texts = [text for text in sentences if text.strip()]
        vocab = train_vocab(texts, size=120)
        (top / "laser2.spm").write_bytes(vocab.model_bytes)
        pieces = sorted(vocab.pieces()[4:])
        (top / "laser2.cvocab").write_text("".join(f"{piece} 9\n" for piece in pieces[:-5]))
        rows = 4 + len(pieces) - 5 + last_norm
        tensors = make(FAIRSEQ, rows, 16, 2, "embed_tokens.weight", "layers", last_norm)
        cfg = argparse.Namespace(**(CFG | options))
        named = {f"{prefix}{name}": value for name, value in tensors.items()}
        extra = {"decoder.version": torch.ones(1), "lm_head.bias": torch.ones(3)}
        path = top / "laser3-xxx_Latn.v1.pt"
        torch.save({"cfg": {"model": cfg, "task": None}, "model": named | extra}, path)
        return path, tensors, {piece: 4 + number for number, piece in enumerate(pieces[:-5])}

    return write


@pytest.mark.parametrize(
    ("options", "last_norm", "prefix"),
    [
        ({}, True, ""),
        ({"encoder_normalize_before": True}, True, "encoder."),
        ({"sentemb_criterion": "maxpool", "prepend_bos": False}, False, ""),
    ],
)
def test_laser3_has_the_vectors_of_its_equations(tmp_path, laser3, options, last_norm, prefix):
    path, tensors, dictionary = laser3(last_norm, prefix, **options)
    cfg = CFG | options
    convert_laser(path, tmp_path / "m", languages=("wo",))
    expected = []
    for text in TEXTS:
        pieces = reference.laser2_pieces(text, path.with_name("laser2.spm")).split()
        ids = [0] * cfg["prepend_bos"] + [dictionary.get(piece, 3) for piece in pieces] + [2]
        pre = cfg["encoder_normalize_before"]
        found = states(tensors, FAIRSEQ, ids, "embed_tokens.weight", "layers", 2, pre)
        expected.append(found[0] if cfg["sentemb_criterion"] == "cls" else found.max(0)[0])
    for backend in ("numpy", "jax"):
        found = xling_jax.load(tmp_path / "m", backend=backend).encode(TEXTS)
        np.testing.assert_allclose(found, torch.stack(expected).numpy(), atol=2e-5)
    assert load_model(tmp_path / "m").config["languages"] == ["wo"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"encoder_learned_pos": True}, "cfg: encoder_learned_pos must be False; found True"),
        ({"prepend_bos": False}, "prepend_bos must be True with sentemb_criterion cls"),
        ({"sentemb_criterion": "mean"}, "sentemb_criterion='mean' must be one of cls, maxpool"),
        ({"encoder_attention_heads": 3}, "heads must divide the width 16; found 3"),
    ],
)
def test_options_that_laser3_does_not_have_are_refused(tmp_path, laser3, options, message):
    with pytest.raises(ValueError, match=message) as error:
        convert_laser(laser3(**options)[0], tmp_path / "m")
    assert "\n" not in str(error.value)


@pytest.fixture(scope="module")
def sonar(tmp_path_factory, sentences):
    top = tmp_path_factory.mktemp("sonar")
    texts = [text for text in sentences if text.strip()]
    (top / "own.model").write_bytes(train_vocab(texts, size=120).model_bytes)
    from sentencepiece import SentencePieceTrainer

    SentencePieceTrainer.train(
        sentence_iterator=iter(texts),
        model_prefix=str(top / "sentencepiece.source"),
        vocab_size=100,
        minloglevel=2,
    )
    (top / "own.model").unlink()
    embedding = "encoder_frontend.embed.weight"
    tensors = make(FAIRSEQ2, 100 + 206, 128, 2, embedding, "encoder.layers", True)
    torch.save({"model": tensors}, top / "sonar_text_encoder.pt")
    return top / "sonar_text_encoder.pt", tensors


@pytest.mark.parametrize("language", ["eng_Latn", "wol_Latn"])
def test_sonar_has_the_vectors_of_its_equations(tmp_path, sonar, language):
    from sentencepiece import SentencePieceProcessor

    path, tensors = sonar
    words = ["convert", "--from", "sonar", str(path), "--output", str(tmp_path / "m")]
    assert main([*words, "--language", language]) == 0
    pieces = SentencePieceProcessor(model_file=str(path.with_name("sentencepiece.source.model")))
    expected = []
    for text in TEXTS:
        # fairseq2: padding before the pieces, languages behind them in NLLB's order.
        first = 101 + fairseq._NLLB_LANGUAGES.index(language)
        ids = [first, *(1 + number for number in pieces.encode(text)), 3]
        embedding = "encoder_frontend.embed.weight"
        found = states(tensors, FAIRSEQ2, ids, embedding, "encoder.layers", 2, True)
        expected.append(found.mean(0))
    found = xling_jax.load(tmp_path / "m").encode(TEXTS)
    np.testing.assert_allclose(found, torch.stack(expected).numpy(), atol=2e-5)


def test_files_of_sonar_that_do_not_belong_together_are_refused(tmp_path, sonar, capsys):
    path, tensors = sonar
    words = ["convert", "--from", "sonar", "--output", str(tmp_path / "m")]
    assert main([*words, str(path), "--language", "en"]) == 1
    assert "language='en' must be one of ace_Arab" in capsys.readouterr().err
    cut = {**tensors, "encoder_frontend.embed.weight": tensors["encoder_frontend.embed.weight"][1:]}
    torch.save(cut, path.with_name("cut.pt"))
    assert main([*words, str(path.with_name("cut.pt"))]) == 1
    assert "has 305 rows; with its 100 pieces, 306 are expected" in capsys.readouterr().err
    assert main([words[0], *words[3:], str(path)]) == 1  # as LASER
    assert "are supported, and SONAR with --from sonar" in capsys.readouterr().err
    fairseq.convert_sonar(path, tmp_path / "m")
    with pytest.raises(ValueError, match="family fairseq do not exist in sentence-transformers"):
        EXPORTERS["sentence-transformers"](tmp_path / "m", tmp_path / "st")
