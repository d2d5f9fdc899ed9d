import json
import random
import re

import jax
import numpy as np
import pytest
import safetensors.numpy

from xling_jax.encode.model_directory import load_model, save_model

FILES = {"config.json", "encoder.safetensors", "sentencepiece.model"}


def change_config(directory, **changes):
    path = directory / "config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps({**config, **changes}))


def test_what_is_saved_is_loaded(tmp_path, model_arguments):
    fingerprint = save_model(tmp_path / "runs" / "m", **model_arguments)
    spec = load_model(tmp_path / "runs" / "m")
    assert spec.fingerprint == fingerprint
    assert spec.languages == ("de", "en")
    assert spec.max_length_tokens == model_arguments["max_length_tokens"]
    assert spec.dim == model_arguments["encoder_args"]["width"]
    assert spec.config["training"] == {"steps": 0}
    assert spec.vocab.fingerprint == model_arguments["vocab"].fingerprint
    jax.tree.map(np.testing.assert_array_equal, spec.params, model_arguments["params"])
    assert sorted(path.name for path in (tmp_path / "runs" / "m").iterdir()) == [
        "README.md",
        "config.json",
        "encoder.safetensors",
        "sentencepiece.model",
    ]
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["m"]


@pytest.mark.parametrize(
    "wrong, problem",
    [
        ({"prompts": ["query"]}, "prompts must map names to texts; found"),
        ({"default_prompt": "q"}, "default_prompt must be the name of a prompt .none.; found 'q'"),
        ({"truncate_dim": 10_000}, "truncate_dim must be from 1 to"),
        ({"truncate_dim": True}, "truncate_dim must be from 1 to"),
    ],
)
def test_impossible_prompts_and_widths_are_refused(model_directory, wrong, problem):
    change_config(model_directory, **wrong)
    with pytest.raises(ValueError, match=f"config.json: {problem}"):
        load_model(model_directory)


def test_fingerprint_follows_what_changes_vectors_and_nothing_else(tmp_path, model_arguments):
    def fingerprint(**changes):
        return save_model(tmp_path / "m", **{**model_arguments, **changes}, overwrite=True)

    first = fingerprint()
    assert fingerprint(training={"steps": 9}, languages=("fr",)) == first
    assert fingerprint(max_length_tokens=39) != first
    changed = jax.tree.map(np.copy, model_arguments["params"])
    jax.tree.leaves(changed)[0].flat[0] += 1
    assert fingerprint(params=changed) != first


def test_params_of_another_shape_are_not_saved(tmp_path, model_arguments):
    params = dict(model_arguments["params"])
    name = sorted(params)[0]
    with pytest.raises(ValueError, match=f"are missing, first {name}"):
        save_model(
            tmp_path / "m",
            **{**model_arguments, "params": {k: v for k, v in params.items() if k != name}},
        )
    half = jax.tree.map(lambda leaf: leaf.astype(np.float16), params)
    with pytest.raises(ValueError, match="must be float32 .*; found float16"):
        save_model(tmp_path / "m", **{**model_arguments, "params": half})
    assert list(tmp_path.iterdir()) == []


def test_only_a_model_directory_is_replaced_and_only_on_request(tmp_path, model_arguments):
    save_model(tmp_path / "m", **model_arguments)
    with pytest.raises(FileExistsError, match="already exists"):
        save_model(tmp_path / "m", **model_arguments)
    save_model(tmp_path / "m", **model_arguments, overwrite=True)
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "to_my_aunt.txt").write_text("Dear aunt")
    for _ in range(2):
        with pytest.raises(ValueError, match="only an earlier output or an empty directory"):
            save_model(tmp_path / "letters", **model_arguments, overwrite=True)
        (tmp_path / "letters" / "config.json").write_text("{}")  # as that of a published model
    assert sorted(path.name for path in tmp_path.iterdir()) == ["letters", "m"]


def test_parameters_of_another_model_are_named(model_directory):
    path = model_directory / "encoder.safetensors"
    tensors = safetensors.numpy.load_file(path)
    name = sorted(tensors)[0]
    renamed = {("x" if key == name else key): value for key, value in tensors.items()}
    safetensors.numpy.save_file(renamed, path)
    with pytest.raises(ValueError, match=f"1 are missing, first {name}; 1 are unknown, first x"):
        load_model(model_directory)
    safetensors.numpy.save_file({**tensors, name: np.zeros(3, np.float32)}, path)
    with pytest.raises(ValueError, match=re.escape(f"{name} must be float32")):
        load_model(model_directory)
    safetensors.numpy.save_file({**tensors, name: tensors[name].astype(np.float64)}, path)
    with pytest.raises(ValueError, match="found F64"):
        load_model(model_directory)
    safetensors.numpy.save_file({**tensors, name: tensors[name] + 1}, path)
    with pytest.raises(ValueError, match="a file was changed or comes from another model"):
        load_model(model_directory)


def test_a_missing_or_broken_file_is_named(model_directory):
    for name, broken, problem in (
        ("config.json", b"{", "not valid JSON"),
        ("sentencepiece.model", b"x" * 100, "not a SentencePiece model"),
        ("encoder.safetensors", b"x", "truncated or damaged"),
    ):
        path, intact = model_directory / name, (model_directory / name).read_bytes()
        path.write_bytes(broken)
        with pytest.raises(ValueError, match=rf"{name}: {problem}"):
            load_model(model_directory)
        path.unlink()
        with pytest.raises(ValueError, match=f"{name} is missing"):
            load_model(model_directory)
        path.write_bytes(intact)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format_version": 2}, "format_version 2 is newer than the 1"),
        ({"format_version": None}, "has no format_version"),
        ({"family": "rnn"}, "describes no known encoder: encoder.family='rnn' must be one of"),
        (
            {"encoder": {"vocab_size": 120, "widht": 3}},
            "encoder.widht is not an option of TLaserEncoder; did you mean width",
        ),
        ({"encoder": {"vocab_size": 12, "width": 16}}, "the files are from different models"),
        ({"dim": 17}, "dim=17; the encoder has 16"),
        ({"specials": [["bos"], []]}, "specials="),
        ({"languages": "de"}, "languages must be of type list; found 'de'"),
        ({"preprocessing": {"lowercase": False}}, "a file was changed or comes from another"),
    ],
)
def test_a_config_that_fits_nothing_is_named(model_directory, changes, message):
    change_config(model_directory, **changes)
    if "encoder" in changes and "different" in message:
        arguments = {"layers": 1, "heads": 2, "ffn_width": 16}
        change_config(model_directory, encoder={**changes["encoder"], **arguments})
    with pytest.raises(ValueError, match=message) as error:
        load_model(model_directory)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["config.json", "encoder.safetensors", "sentencepiece.model"])
def test_a_flipped_bit_is_found_and_its_file_named(model_directory, name):
    path, generator = model_directory / name, random.Random(name)
    intact, content = load_model(model_directory), path.read_bytes()
    found = 0
    for _ in range(20):
        damaged = bytearray(content)
        damaged[generator.randrange(len(content))] ^= 1 << generator.randrange(8)
        path.write_bytes(damaged)
        try:
            loaded = load_model(model_directory)
        except ValueError as error:
            assert "\n" not in str(error)
            assert name in str(error) or name == "config.json"  # which may disagree with another
            found += 1
        else:  # white space between JSON values
            assert name == "config.json" and loaded.config == intact.config
    assert found >= 15


def test_a_directory_without_hashes_is_refused(model_directory):
    path = model_directory / "config.json"
    config = json.loads(path.read_text())
    assert config.pop("hashes").keys() == FILES
    path.write_text(json.dumps(config))
    with pytest.raises(ValueError, match="has no hashes, as written by 0.1; save it again"):
        load_model(model_directory)
