import pytest

from xling_jax.papers import page
from xling_jax.papers.li_mak import TABLES as LI_MAK
from xling_jax.papers.mao import TABLES as MAO
from xling_jax.papers.tables import Key, Measured, Row, Table
from xling_jax.papers.yu import TABLES as YU


def measured(cells, facts=(), missing=()):
    return Measured(dict(cells), [], [*facts], [*missing])


def result(name, table, rows):
    none = {row.name: [measured({})] for row in table.rows}
    return page.Result(name, table, "smoke", none | rows)


def test_seeds_give_mean_and_deviation_and_the_pool_stands_below(tmp_path):
    key, own = Key("XSR", "en", "fr"), Key("MLDoc", "en", "en")
    pool = ["XSR, en-fr: among 150 sentences"]
    seeds = [measured({key: value, own: 50.0}, pool) for value in (20.0, 30.0, 40.0)]
    one = result("mao-7", MAO["mao-7"], {"UGT+align": seeds})
    text = page.write(tmp_path, "mao-7", [one])
    assert "| 30.0 ± 10.0 / 89.9 |" in text
    assert "\nData: XSR, en-fr: among 150 sentences.\n" in text
    assert "en→en" not in text  # the paper has no diagonal
    assert (tmp_path / "mao-7.md").read_text("utf-8") == text
    html = (tmp_path / "mao-7.html").read_text("utf-8")
    assert 'background: rgba(213, 94, 0, 0.60)">30.0 ± 10.0<small>89.9<' in html
    assert '<h2 id="mao-7">mao-7: Table 7' in html  # the papers all have a Table 7
    assert "<script" not in html and "src=" not in html


def test_a_mean_over_fewer_cells_says_so_below_the_table():
    cells = {Key("accuracy", s, t): 80.0 for s in ("de", "en") for t in ("de", "en")}
    one = result("yu-2", YU["yu-2"], {"NMT only": [measured(cells)]})
    text = page.markdown(one)
    assert "Mean of the 2 cells in common: NMT only | de all (the paper prints 87.5); " in text
    assert "Mean of the 4 cells in common: NMT only | mean all (the paper prints 88.9).\n" in text
    mean = Key("accuracy", "*", "*", "all")._asdict().items()
    (cell,) = [c for c in page.as_json(one)["cells"] if mean <= c.items() and c["ours"]]
    assert cell["ours"] == 80.0
    assert cell["published"] == pytest.approx((96.9 + 87.0 + 85.5 + 97.2) / 4)


def test_cells_that_the_paper_does_not_print_are_not_shown():
    cells = {Key("accuracy", s, t): 80.0 for s in ("de", "en") for t in ("de", "en")}
    text = page.markdown(result("li-mak-2", LI_MAK["li-mak-2"], {"T-LASER": [measured(cells)]}))
    assert "| T-LASER \\| en | 80.0 / 84.6 |" in text
    assert "T-LASER \\| de" not in text  # Table 2 is from English only


def test_what_is_not_measured_says_why_below_the_table():
    table, missing = YU["yu-2"], ["parallel/europarl*.tsv* in --data"]
    rows = {name: [measured({}, missing=missing)] for name in ("NMT only", "similarity loss")}
    text = page.markdown(result("yu-2", table, rows))
    assert f"Not measured without {missing[0]}: NMT only; similarity loss." in text


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
    assert "| | " not in (text := page.markdown(one)) and "in the HTML page" in text
    assert 'src="data:image/png;base64,UE5H"' in page.page([one], "t")
