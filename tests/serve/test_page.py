"""The page at the root of the server, in a real browser."""

import time

import pytest

from tests.browser import DESKTOP, PHONE, look
from tests.serve.test_command import serving

LINES = ["Wo ist der nächste Bahnhof?", "Das Haus ist rot.", "Il fait beau aujourd'hui."]
LINES += ["<b>" + "sehrlang" * 40, "שלום עולם"]


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    text = tmp_path_factory.mktemp("text") / "corpus.txt"
    text.write_text("\n".join(LINES), encoding="utf-8")
    with serving("--model", "mini", "--text", str(text)) as (_, url):
        yield url


def first_text(driver, wanted):
    """Waits for the first line found."""
    for _ in range(200):
        found = driver.execute_script("return document.querySelector('.text')?.firstChild.data")
        if found == wanted:
            return
        time.sleep(0.05)
    raise AssertionError(f"{found!r} instead of {wanted!r}")


@pytest.mark.parametrize(("width", "scheme"), [(PHONE, "light"), (DESKTOP, "dark")])
def test_results_as_one_types_by_keyboard_only(chromium, url, width, scheme):
    from selenium.webdriver import ActionChains, Keys

    look(chromium, width, scheme)
    chromium.get(url)
    keys = lambda *typed: ActionChains(chromium).send_keys(*typed).perform()
    active = lambda: chromium.execute_script("return document.activeElement.innerText || ''")
    keys("train station")
    first_text(chromium, LINES[0])
    assert chromium.current_url.endswith("?q=train%20station")
    assert chromium.execute_script("return document.documentElement.scrollWidth") <= width
    assert "5 lines" in chromium.execute_script("return document.body.innerText")
    keys(Keys.ARROW_DOWN)
    assert LINES[0] in active()
    keys(Keys.ARROW_DOWN, Keys.ARROW_UP, Keys.ARROW_UP)
    assert chromium.execute_script("return document.activeElement.id") == "query"
    keys(Keys.ARROW_DOWN, Keys.ESCAPE, "red house")
    first_text(chromium, LINES[1])
    keys(Keys.ARROW_DOWN, Keys.ENTER)  # lines like this one
    first_text(chromium, LINES[1])
    assert chromium.execute_script("return query.value") == LINES[1]
    page = chromium.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert (page == "rgb(20, 23, 26)") == (scheme == "dark")
    assert chromium.get_log("browser") == []
