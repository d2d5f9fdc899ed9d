import numpy as np
import pytest

import xling_jax
from xling_jax.config import load
from xling_jax.encode.teacher import Teacher, teacher_dim
from xling_jax.options import OptionError
from xling_jax.runs.prepare import check_teacher

TEXTS = ["Guten Tag", "two  words", "un soft\u00adhyphen", "Guten Tag"]


@pytest.fixture
def stored(tmp_path):
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS) + "\n")
    np.save(tmp_path / "v.npy", np.arange(12, dtype=np.float32).reshape(4, 3) + 1)
    return str(tmp_path / "v.npy"), str(tmp_path / "texts.txt")


def test_a_model_gives_the_unit_vectors_of_encode():
    teacher = Teacher("mini")
    (vectors,) = teacher.encode_stream(TEXTS)
    expected = xling_jax.load("mini").encode(TEXTS, normalize=True)
    np.testing.assert_array_equal(vectors, expected)
    assert teacher.dim == teacher_dim("mini") == vectors.shape[1] and teacher.fingerprint


def test_stored_vectors_are_found_by_their_text_as_cleaning_leaves_it(stored):
    teacher = Teacher(*stored)
    assert teacher.dim == teacher_dim(*stored) == 3
    (vectors,) = teacher.encode_stream(["un softhyphen", "Guten Tag", "two words"])
    expected = np.array([[7, 8, 9], [1, 2, 3], [4, 5, 6]], np.float64)
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(vectors, expected, rtol=1e-6)
    with pytest.raises(ValueError, match=r"texts.txt: has no line 'guten tag', which is in the tr"):
        list(teacher.encode_stream(["Guten Tag", "guten tag"]))


def test_a_teacher_that_cannot_be_learned_is_refused_before_any_work(stored):
    def check(*overrides):
        overrides = [f"--config.objective.distillation.{text}" for text in overrides]
        experiment = load("distill:smoke", ["--config.data.corpora=('x.tsv',)", *overrides])
        check_teacher(experiment)

    check()
    with pytest.raises(OptionError, match=r"distillation.teacher: nowhere"):
        check("teacher=nowhere")
    with pytest.raises(OptionError, match="v.npy has 3 dimensions, the encoder 32; make the enc"):
        check(f"teacher={stored[0]}", f"teacher_texts={stored[1]}")
    check(f"teacher={stored[0]}", f"teacher_texts={stored[1]}", "form=similarity")
    with pytest.raises(OptionError, match="none.txt: no such file"):
        check(f"teacher={stored[0]}", "teacher_texts=none.txt")
    with pytest.raises(ValueError, match="distillation.teacher is missing; name a model directory"):
        check("teacher=")
