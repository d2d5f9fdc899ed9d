"""What a directory of sentence-transformers says is followed or refused, key by key.

Each key has a row below, with a value that is not the default: either our vectors are still those
of sentence-transformers, or the conversion is refused.
"""

import json
import shutil

import numpy as np
import pytest

import xling_jax
from xling_jax.formats.huggingface import convert_huggingface

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
sentence_transformers = pytest.importorskip("sentence_transformers")

from sentence_transformers.sentence_transformer import modules  # noqa: E402

from tests.formats import huggingface_reference as reference  # noqa: E402

TEXTS = [
    *reference.TEXTS,
    *reference.HOSTILE[4:9],
    "KEL la mo",
    "la [SEP] mo </s> ti",
    "木 la 木木",
]
# File -> key -> value, and why it is refused; "" where it is followed or changes no vector.
SETTINGS = {
    "modules.json": {
        "idx": (9, ""),
        "name": ("x", ""),
        "path": ("../st", "must be a directory here"),
        "type": ("mine.Pooling", "is code of its own, which is not run"),
        "kwargs": (["task"], r"kwargs must be \[\]; found \['task'\]"),
    },
    "config_sentence_transformers.json": {
        "__version__": ({}, ""),
        "model_type": ("SparseEncoder", "model_type must be 'SentenceTransformer'; found"),
        "prompts": ({"query": "la mo: ", "passage": None}, ""),
        "default_prompt_name": ("mine", "default_prompt_name 'mine' must be one of its prompts"),
        "similarity_fn_name": ("dot", ""),
        "truncate_dim": (5, ""),
    },
    "sentence_bert_config.json": {
        "transformer_task": ("fill-mask", "transformer_task must be 'feature-extraction'"),
        "modality_config": ({"image": {}}, "modality_config must be"),
        "module_output_name": ("sentence_embedding", "module_output_name must be"),
        "processing_kwargs": ({"text": {"max_length": 3}}, "processing_kwargs must be {}; found"),
        "unpad_inputs": (False, ""),
        "query_length": (3, "query_length must be None; found 3"),
        "do_lower_case": (True, ""),
        "max_seq_length": (9, ""),
        "model_args": ({"x": 1}, "model_args must be {}"),
    },
    "1_Pooling/config.json": {
        "embedding_dimension": (5, ""),
        "pooling_mode": ("cls", ""),
        "include_prompt": (False, ""),
    },
    "2_Dense/config.json": {
        "in_features": (5, r"must be \[16, 5\]"),
        "out_features": (5, r"must be \[5, 24\]"),
        "bias": (True, ""),  # without one, sentence-transformers refuses the tensors that are there
        "activation_function": ("torch.nn.modules.activation.Sigmoid", ""),
        "use_residual": (True, "use_residual must be False"),
    },
    "3_Dropout/config.json": {"dropout": (0.9, "")},
    "4_Dense/config.json": {"activation_function": ("torch.nn.modules.linear.Identity", "")},
    "5_Normalize/config.json": {
        "module_output_name": ("token_embeddings", "module_output_name must be"),
    },
}
# Of any kind of tokenizer; keys with the content of the file itself are not changed.
TOKENIZER = {
    "truncation_side": ("left", ""),
    "padding_side": ("left", "padding_side must be right: with absolute positions"),
    "add_eos_token": (True, ""),
    "split_special_tokens": (True, "split_special_tokens must be False"),
    "auto_map": ({"AutoTokenizer": ["x.y", None]}, "auto_map must be {}"),
    "model_max_length": (9, ""),
    "clean_up_tokenization_spaces": (True, ""),
}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A directory with every module that can be converted."""
    path = tmp_path_factory.mktemp("settings")
    reference.save_model(path / "bert", "bert")
    parts = [modules.Transformer(str(path / "bert"), max_seq_length=20)]
    parts += [modules.Pooling(24, pooling_mode="mean"), modules.Dense(24, 16)]
    parts += [modules.Dropout(0.5)]
    parts += [modules.Dense(16, 12, activation_function=torch.nn.SiLU()), modules.Normalize()]
    for part in (parts[2], parts[4]):
        reference.randomize(part)
    sentence_transformers.SentenceTransformer(modules=parts, device="cpu").save(str(path / "st"))
    return path / "st"


def edit(path, file, key, value):
    content = json.loads((path / file).read_text())
    if file == "modules.json":
        content[1][key] = value
    else:
        content[key] = value
    (path / file).write_text(json.dumps(content))


def changed(saved, path, file, key, value):
    shutil.copytree(saved, path)
    edit(path, file, key, value)
    return path


def check(path, tmp_path, message):
    """Our vectors are those of sentence-transformers, or we refuse with a message."""
    if message:
        with pytest.raises(ValueError, match=message) as error:
            convert_huggingface(path, tmp_path / "m")
        assert "\n" not in str(error.value) and str(path) in str(error.value)
        return
    convert_huggingface(path, tmp_path / "m")
    encoder = xling_jax.load(tmp_path / "m")
    model = sentence_transformers.SentenceTransformer(str(path), device="cpu")
    assert encoder.prompts.keys() <= model.prompts.keys()
    for name in (None, *encoder.prompts):
        chosen = {"prompt_name": name} if name else {}
        found, expected = encoder.encode(TEXTS, **chosen), model.encode(TEXTS, **chosen)
        np.testing.assert_allclose(found, expected, atol=1e-5)


KEYS = SETTINGS | {"tokenizer_config.json": TOKENIZER}


def test_keys_are_followed(saved, tmp_path):
    path = shutil.copytree(saved, tmp_path / "st")
    for file, keys in KEYS.items():
        for key, (value, message) in keys.items():
            if not message and key != "include_prompt":  # false is refused beside prompts
                edit(path, file, key, value)
    check(path, tmp_path, "")


@pytest.mark.parametrize(
    ("file", "key"),
    [(file, key) for file, keys in KEYS.items() for key, (_, message) in keys.items() if message],
)
def test_a_key_is_refused(saved, tmp_path, file, key):
    value, message = KEYS[file][key]
    check(changed(saved, tmp_path / "st", file, key, value), tmp_path, message)


def test_a_default_prompt_and_prompts_that_the_pooling_leaves_out(saved, tmp_path):
    file = "config_sentence_transformers.json"
    prompts = {"query": "la mo: ", "document": "su: "}
    path = changed(saved, tmp_path / "st", file, "prompts", prompts)
    reference.edit_json(path / file, default_prompt_name="query")
    check(path, tmp_path, "")
    assert xling_jax.load(tmp_path / "m").default_prompt == "query"
    reference.edit_json(path / "1_Pooling" / "config.json", include_prompt=False)
    check(path, tmp_path, "include_prompt must be true where there are prompts")


def test_the_limit_of_sentence_transformers_replaces_the_tokenizers(saved, tmp_path):
    file = "sentence_bert_config.json"
    path = changed(saved, tmp_path / "st", file, "max_seq_length", 20)
    reference.edit_json(path / "tokenizer_config.json", model_max_length=9)
    check(path, tmp_path, "")
    assert xling_jax.load(tmp_path / "m").max_length_tokens == 20


def test_a_tokenizer_without_post_processor_is_refused(saved, tmp_path):
    path = changed(saved, tmp_path / "st", "tokenizer.json", "post_processor", None)
    check(path, tmp_path, "its post_processor must put one special token")
