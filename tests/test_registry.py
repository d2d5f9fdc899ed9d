import pytest

from xling_jax.eval.tasks import Task
from xling_jax.registry import Registry

TABLE = Registry(
    "color",
    red=("xling_jax.registry:Registry", "of blood"),
    blue="xling_jax.registry:Blue",
    green="xling_jax.nowhere:Green",
)


def test_an_entry_is_imported_when_it_is_asked_for():
    assert TABLE["red"] is Registry
    assert [*TABLE] == ["red", "blue", "green"] and TABLE.help("red") == "of blood"


def test_an_unknown_name_is_an_error_with_the_near_ones():
    with pytest.raises(ValueError, match="color='grren' must be one of red, blue, green; did you"):
        TABLE["grren"]


@pytest.mark.parametrize("name", ["blue", "green"])
def test_an_entry_that_leads_nowhere_names_its_table(name):
    with pytest.raises(ImportError, match=f"color '{name}': its table names xling_jax.* not exist"):
        TABLE[name]


def test_a_task_without_its_attributes_is_refused_where_it_is_defined():
    with pytest.raises(TypeError, match="Bare: a task needs the class attributes title, data_help"):

        class Bare(Task):
            pass
