"""A stage is whole or missing, and done only for the key that it was made with."""

import pytest

from xling_jax.corpora.stages import Stage


def test_a_stage_is_made_once_for_its_key(tmp_path):
    made = []

    def fill(directory):
        (directory / "text").write_text("x")
        made.append(directory)
        return {"rows": 3}

    stage = Stage(tmp_path / "a", "k1", "a.json")
    assert stage.read() is None
    expected = {"rows": 3, "fingerprint": "k1"}
    assert stage.make(fill) == stage.make(fill) == stage.read() == expected
    other = Stage(tmp_path / "a", "k2", "a.json")
    assert other.read() is None and other.make(fill)["fingerprint"] == "k2"
    assert stage.read() is None and len(made) == 2

    def fail(directory):
        (directory / "text").write_text("half")
        raise OSError("full")

    with pytest.raises(OSError, match="full"):
        Stage(tmp_path / "b", "k1", "b.json").make(fail)
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_stage_made_in_steps_goes_on_where_it_was_interrupted(tmp_path):
    stage, other = (Stage(tmp_path / "de-en", key, "pair.json") for key in ("k1", "k2"))
    (other.begin() / "00000").touch()
    (stage.begin() / "00000").touch()
    assert not other.unfinished.exists()
    assert [path.name for path in stage.begin().iterdir()] == ["00000"] and stage.read() is None
    stage.finish({"rows": 1})
    assert stage.read() == {"rows": 1, "fingerprint": "k1"} and not stage.unfinished.exists()


def test_a_directory_that_is_named_by_its_key_needs_none_in_its_record(tmp_path):
    (tmp_path / "k1").mkdir()
    (tmp_path / "k1/text.json").write_text('{"counts": {}}')
    assert Stage(tmp_path / "k1", "k1", "text.json").read() == {"counts": {}}
