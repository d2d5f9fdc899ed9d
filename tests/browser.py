"""Chromium, without a window."""

import contextlib
import shutil
import tempfile

import pytest

PHONE, DESKTOP = 390, 1280
OPTIONS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage")
OPTIONS += ("--no-first-run", "--disable-background-networking", "--disable-component-update")


@contextlib.contextmanager
def started():
    """Yields a driver of Chromium; skips the test where that or selenium is not installed."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    driver = shutil.which("chromedriver")
    if not (program and driver):
        pytest.skip("Chromium is not installed")
    options = webdriver.ChromeOptions()
    options.binary_location = program
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        for option in (*OPTIONS, f"--user-data-dir={profile}"):
            options.add_argument(option)
        browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
        yield browser
        browser.quit()


def look(browser, width, scheme):
    """Sets the width of the window, 390 for that of a phone, and the color scheme."""
    metrics = {"width": width, "height": 844, "deviceScaleFactor": 1, "mobile": width == PHONE}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
