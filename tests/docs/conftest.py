import pytest

from tests.docs.pages import copy_place, write_place


@pytest.fixture(scope="session")
def prepared(tmp_path_factory):
    place = tmp_path_factory.mktemp("place")
    write_place(place)
    return place


@pytest.fixture
def place(prepared, tmp_path):
    return copy_place(prepared, tmp_path / "place")
