"""The report in a real browser: it opens, draws, answers the pointer, and fits phones.

Needs Chromium with its driver and selenium; skipped where they are not installed.
"""

import numpy as np
import pytest

from tests.browser import DESKTOP, PHONE, look
from xling_jax.eval.results import Heatmap
from xling_jax.eval.retrieval_data import ParallelText, RetrievalData
from xling_jax.report.errors import worst_errors
from xling_jax.report.page import make_page
from xling_jax.report.pictures import draw_all
from xling_jax.report.runs import Run

LANGUAGES = ("en", "de", "fr", "es", "it", "pt")


def encode(texts):
    """Texts with one number are near, whatever their language; a third of them is astray."""
    vectors = np.empty((len(texts), 8))
    for row, text in enumerate(texts):
        number = int(text.split()[1])
        astray = hash_of(text) % 3 == 0
        vectors[row] = np.random.default_rng(number).normal(size=8)
        vectors[row] += np.random.default_rng(hash_of(text)).normal(size=8) * (2 if astray else 0.3)
    return vectors


def hash_of(text):
    return sum(map(ord, text)) * 31


def make_runs(picture):
    steps = list(range(50, 5000, 50))
    cells = {a: {b: 0.9 - 0.02 * i for i, b in enumerate(LANGUAGES) if a != b} for a in LANGUAGES}
    errors = {a: {b: 1 - value for b, value in row.items()} for a, row in cells.items()}
    matrix = {"p_at_1": cells, "error": errors, "mean": {"p_at_1": 0.85, "error": 0.15}}
    runs = []
    for number, name in enumerate(("a_run_with_a_rather_long_name", "second", "third")):
        curve = [3 / (1 + step / 500) + 0.1 * number for step in steps]
        run = Run(name, None, {"languages": list(LANGUAGES), "encoder": {"family": "dual"}})
        run.curves = {"train/loss": (steps, curve), "toy/p_at_1": (steps[::20], [0.5] * 5)}
        for task in ("retrieval", "classification"):
            results = {"task": task, "metrics": {"toy/p_at_1": 0.85}}
            results["matrices"] = {"toy": matrix}
            results["model"] = {"path": "runs/" + 60 * "x", "fingerprint": 64 * "f"}
            results["command"] = f"xling evaluate {task} --model {60 * 'x'} --output {80 * 'y'}"
            run.results.append(results)
        runs.append(run)
    runs[0].results[0]["pictures"] = [picture]
    return runs


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    words = " words enough that the line has to be broken on a phone"
    texts = {code: [f"{code} {i}{words}" for i in range(30)] for code in LANGUAGES}
    data = RetrievalData("toy", (ParallelText("toy", texts),))
    errors = worst_errors("second", encode, data)
    path = tmp_path_factory.mktemp("page") / "report.html"
    cells = np.full((6, 6), 0.5)
    draw_all([Heatmap("toy", cells, LANGUAGES, LANGUAGES, "Toy")], path.parent)
    runs = make_runs(path.with_name("toy.png"))
    path.write_text(make_page(runs, [errors], title="Three runs", note="Made by a test"))
    return path


@pytest.fixture(
    params=[(PHONE, "light"), (DESKTOP, "dark")],
    ids=lambda param: f"{param[0]}-{param[1]}",
)
def opened(request, chromium, page):
    """The page at a width and in a color scheme; nothing may be complained about."""
    width, scheme = request.param
    look(chromium, width, scheme)
    chromium.get(page.as_uri())
    chromium.width, chromium.scheme = width, scheme
    yield chromium
    assert chromium.get_log("browser") == []


def value(driver, expression):
    return driver.execute_script(f"return {expression}")


def click(driver, selector):
    driver.execute_script("document.querySelector(arguments[0]).click()", selector)


def test_it_opens_and_fits_the_width(opened):
    assert value(opened, "document.title") == "Three runs"
    assert value(opened, "document.documentElement.scrollWidth") <= opened.width
    # What is wider than the page scrolls in a box of its own, which must be inside.
    outside = """[...document.querySelectorAll('main *')].filter(e => !e.closest('.scroll')
        && e.getClientRects().length && e.getBoundingClientRect().right > innerWidth + 1).length"""
    assert value(opened, outside) == 0


def test_a_cut_table_fades_out_and_keeps_its_first_column(opened):
    boxes = "[...document.querySelectorAll('.scroll')].filter(e => e.getClientRects().length)"
    wait = "new Promise(done => requestAnimationFrame(() => setTimeout(done, 100)))"
    # Narrow, as a table of many columns is on a phone.
    narrow = "document.querySelectorAll('.scores').forEach(e => { e.style.width = '140px'; })"
    opened.execute_script(f"{narrow}; return {wait}")
    cut = opened.execute_script(f"""
        return {boxes}.map(e => [e.scrollWidth > e.clientWidth + 1, e.classList.contains('right'),
          getComputedStyle(e).maskImage !== 'none' || e.classList.contains('below')]);""")
    assert all(is_cut == fades for is_cut, fades, _ in cut)
    assert all(masked for is_cut, _, masked in cut if is_cut)
    assert any(is_cut for is_cut, _, _ in cut)
    wide = f"{boxes}.find(e => e.classList.contains('right') && e.matches('.scores'))"
    gap = opened.execute_async_script(f"""
        const done = arguments[0], box = {wide};
        box.scrollLeft = box.scrollWidth;
        {wait}.then(() => {{
          const first = box.querySelector('tbody th:not([colspan])').getBoundingClientRect();
          done([box.className, first.left - box.getBoundingClientRect().left]); }});""")
    assert gap[0].split() == ["scroll", "scores", "left"] and abs(gap[1]) < 1


def test_everything_is_drawn(opened):
    assert value(opened, "document.querySelectorAll('section > h2').length") == 6
    drawn = """[...document.querySelectorAll('figure img')]
        .filter(e => e.naturalWidth > 100 && e.getBoundingClientRect().height > 100).length"""
    assert value(opened, drawn) == 2 + 1  # Curves and a map.


def test_color_scheme_and_contrast(opened):
    program = """
        const parse = (color) => color.match(/[0-9.]+/g).map(Number);
        const luminance = (color) => { const [r, g, b] = parse(color).slice(0, 3).map(v => v / 255)
          .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
          return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
        const ground = (e) => { for (; e; e = e.parentElement) {
          const color = getComputedStyle(e).backgroundColor;
          if (parse(color)[3] !== 0) return color; } return 'rgb(255, 255, 255)'; };
        const ratio = (a, b) => { const [x, y] = [luminance(a), luminance(b)].sort((p, q) => q - p);
          return (x + 0.05) / (y + 0.05); };
        const texts = [...document.querySelectorAll('h1, h2, p, td, th, button, a, li span, text')];
        const seen = texts.filter(e => e.textContent.trim() && e.getClientRects().length);
        const words = seen.map(e => {
          const style = getComputedStyle(e);
          return ratio(e.tagName === 'text' ? style.fill : style.color, ground(e)); });
        const marks = [...document.querySelectorAll('.swatch')].map(e =>
          ratio(getComputedStyle(e).backgroundColor, ground(e.parentElement)));
        return [luminance(ground(document.body)), Math.min(...words), Math.min(...marks)];"""
    page, words, marks = opened.execute_script(program)
    assert (page > 0.8) == (opened.scheme == "light")
    assert words >= 4.5 and marks >= 3  # WCAG 2.2 AA for text and for graphics.


def test_errors_can_be_filtered_and_unfolded(opened):
    shown = """[...document.querySelectorAll('.error')].filter(e => e.getClientRects().length)
        .map(e => e.dataset.direction)"""
    assert len(value(opened, shown)) == 6
    direction = value(opened, "document.querySelector('.picker option:nth-child(2)').value")
    opened.execute_script(
        "const s = document.querySelector('.picker select'); s.value = arguments[0];"
        "s.dispatchEvent(new Event('change'))",
        direction,
    )
    assert set(value(opened, shown)) == {direction}
    opened.execute_script(
        "const s = document.querySelector('.picker select'); s.value = '';"
        "s.dispatchEvent(new Event('change')); document.querySelector('.all').click()"
    )
    assert len(value(opened, shown)) > 6
