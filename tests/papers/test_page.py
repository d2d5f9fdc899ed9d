from types import SimpleNamespace

import pytest

from xling_jax.papers import page
from xling_jax.papers.mao import TABLES as MAO
from xling_jax.papers.tables import Key, Row, Table
from xling_jax.papers.yu import TABLES as YU


def measured(cells, notes=None, **more):
    return SimpleNamespace(cells=cells, notes=notes or {}, pictures=[], facts=[], **more)


def result(name, table, rows):
    none = {row.name: [measured({})] for row in table.rows}
    return page.Result(name, table, "smoke", none | rows)


def test_seeds_give_mean_and_deviation_and_the_pool_stands_in_the_cell(tmp_path):
    key, own = Key("XSR", "en", "fr"), Key("MLDoc", "en", "en")
    seeds = [measured({key: value, own: 50.0}, {key: "of 150"}) for value in (20.0, 30.0, 40.0)]
    one = result("mao-7", MAO["mao-7"], {"UGT+align": seeds})
    text = page.write(tmp_path, "mao-7", [one])
    assert "| 30.0 ± 10.0 (of 150) / 89.9 |" in text
    assert "en→en" not in text  # the paper has no diagonal
    assert (tmp_path / "mao-7.md").read_text("utf-8") == text
    html = (tmp_path / "mao-7.html").read_text("utf-8")
    assert 'background: rgba(213, 94, 0, 0.60)" title="of 150">30.0 ± 10.0<small>89.9 *' in html
    assert "<script" not in html and "src=" not in html


def test_a_mean_over_fewer_cells_says_so_below_the_table():
    cells = {Key("accuracy", s, t): 80.0 for s in ("de", "en") for t in ("de", "en")}
    one = result("yu-2", YU["yu-2"], {"NMT only": [measured(cells)]})
    text = page.markdown(one)
    assert "Mean of the 4 cells in common, the paper prints 88.9: NMT only | * all." in text
    mean = Key("accuracy", "*", "*", "all")._asdict().items()
    (cell,) = [c for c in page.as_json(one)["cells"] if mean <= c.items() and c["ours"]]
    assert cell["ours"] == 80.0
    assert cell["published"] == pytest.approx((96.9 + 87.0 + 85.5 + 97.2) / 4)


@pytest.mark.parametrize("text", ["a | b", "<b>x</b>"])
def test_text_of_the_data_is_shown_as_text(text):
    table = Table("Title", (Row("ours", ()),), "Rule.", plain=("query",))
    one = result("none-1", table, {"ours": [measured({Key("query"): text})] * 2})  # of two seeds
    assert text.replace("|", "\\|") in page.markdown(one)
    assert "<b>x" not in page.page([one], "t")


def test_a_figure_is_its_pictures(tmp_path):
    (tmp_path / "a.png").write_bytes(b"PNG")
    shown = measured({})
    shown.pictures.append(tmp_path / "a.png")
    one = result("yu-figure-1", YU["yu-figure-1"], {"similarity loss": [shown]})
    assert "| | " not in page.markdown(one)
    assert 'src="data:image/png;base64,UE5H"' in page.page([one], "t")
