"""Copies of files at URLs, with a store in memory."""

import fsspec
import pytest

from xling_jax.files import urls

URL = "memory://bucket/run"


@pytest.fixture(autouse=True)
def store():
    """Names to contents of the files below `URL`; the store is empty before and after."""
    files = fsspec.filesystem("memory")
    files.store.clear()
    yield files
    files.store.clear()


def write(store, **contents):
    for name, content in contents.items():
        store.pipe_file(f"/bucket/run/{name.replace('__', '/')}", content.encode())


def there(store):
    top = "/bucket/run/"
    return {path.removeprefix(top): store.cat_file(path).decode() for path in store.find(top)}


def here(directory):
    files = sorted(path for path in directory.rglob("*") if path.is_file())
    return {path.relative_to(directory).as_posix(): path.read_text() for path in files}


def test_a_file_a_directory_and_a_pattern_are_copied_under_their_names(store, tmp_path):
    write(store, **{"a.de.gz": "x", "data__b": "2", "data__c__d": "3", "a.en": "y"})
    file = urls.fetch(f"{URL}/a.de.gz", tmp_path)
    assert file.name == "a.de.gz" and file.read_text() == "x"
    directory = urls.fetch(f"{URL}/data/", tmp_path)
    assert directory.name == "data" and here(directory) == {"b": "2", "c/d": "3"}
    assert here(urls.fetch("memory://bucket", tmp_path)) == {
        **{f"run/{name}": content for name, content in there(store).items()}
    }
    pattern = urls.fetch(f"{URL}/a.*", tmp_path)
    assert pattern.name == "a.*"
    assert here(pattern.parent) == {"a.de.gz": "x", "a.en": "y"}


def test_what_did_not_change_is_copied_once_and_copies_in_use_stay(store, tmp_path, monkeypatch):
    copied = []
    get = type(store).get
    monkeypatch.setattr(
        type(store), "get", lambda self, a, *b, **c: copied.extend(a) or get(self, a, *b, **c)
    )
    write(store, data__a="1", data__b="2")
    first = urls.fetch(f"{URL}/data", tmp_path)
    assert urls.fetch(f"{URL}/data", tmp_path) == first and len(copied) == 2
    write(store, data__b="3")
    second = urls.fetch(f"{URL}/data", tmp_path)
    assert (here(first), here(second)) == ({"a": "1", "b": "2"}, {"a": "1", "b": "3"})
    store.rm("/bucket/run/data/a")
    assert here(urls.fetch(f"{URL}/data", tmp_path)) == {"b": "3"}


def test_hidden_files_and_names_that_lead_elsewhere_are_left_out(store, tmp_path):
    write(store, data__a="1", **{"data__.part": "", "data__..__..__evil": "!"})
    assert here(urls.fetch(f"{URL}/data", tmp_path)) == {"a": "1"}


def test_some_names_of_a_directory_may_be_left_out(store, tmp_path):
    write(store, data__large__x="1", data__a="2", data__deep__large="3")
    copy = urls.fetch(f"{URL}/data", tmp_path, without=("large",))
    assert here(copy) == {"a": "2", "deep/large": "3"}


def test_nothing_there_and_unknown_protocols_are_errors(store, tmp_path):
    for name in ("missing", "missing/*.tsv"):
        with pytest.raises(FileNotFoundError, match=f"{URL}/missing.*: no such file or directory"):
            urls.fetch(f"{URL}/{name}", tmp_path)
    with pytest.raises(ValueError, match="nonsense:// is not supported here"):
        urls.fetch("nonsense://bucket/x", tmp_path)
    assert [urls.is_url(x) for x in ("gs://b/x", "gs:///x", "tsv:gs://b/x", "/x", None)] == [
        *(True, False, False, False, False)
    ]


def test_an_error_of_the_store_names_the_url_and_leaves_no_copy(store, tmp_path, monkeypatch):
    write(store, a="1")

    def fail(*_, **__):
        raise RuntimeError("no\nnetwork")

    monkeypatch.setattr(type(store), "get", fail)
    with pytest.raises(OSError, match="memory://bucket/run.*: RuntimeError: no network"):
        urls.fetch(f"{URL}/a", tmp_path)
    assert here(tmp_path) == {".lock": ""}


def test_files_and_directories_are_put_and_the_file_that_seals_them_comes_last(
    store, tmp_path, monkeypatch
):
    order = []
    put = type(store).put
    monkeypatch.setattr(
        type(store), "put", lambda self, a, b, **c: order.append(sorted(b)) or put(self, a, b, **c)
    )
    for name in ("config.json", "weights", "deep/x", "text/left-out"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    urls.put(tmp_path, f"{URL}/model", without=("text",))
    assert sorted(there(store)) == ["model/config.json", "model/deep/x", "model/weights"]
    assert [path.rpartition("/")[2] for path in order[-1]] == ["config.json"]
    urls.put(tmp_path / "weights", f"{URL}/model/deep/x")
    assert there(store)["model/deep/x"] == "weights"
    assert urls.exists(f"{URL}/model") and urls.read(f"{URL}/model/weights") == b"weights"
    urls.get(f"{URL}/model", tmp_path / "back")
    assert here(tmp_path / "back") == {
        name: there(store)[f"model/{name}"] for name in ("config.json", "deep/x", "weights")
    }
    urls.remove(f"{URL}/model/weights")
    assert urls.read(f"{URL}/model/weights") is None
    urls.remove(f"{URL}/model")
    urls.remove(f"{URL}/model")
    assert there(store) == {}
