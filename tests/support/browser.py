"""A headless Chromium for tests of pages: the system's, driven by Playwright."""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
ARGUMENTS = ("--disable-background-networking", "--disable-component-update", "--no-first-run")
REQUIRED = "required"


@contextmanager
def chromium() -> Iterator[Browser]:
    """Start the browser; without one, skip the tests, or fail with `MEMLAB_BROWSER=required`."""
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None:
        _give_up("there is no Chromium: 'apt-get install chromium' installs it")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        _give_up("Playwright is missing: 'pip install --group dev' installs it")
    # Chromium's sandbox refuses to run as root; the pages are the tests' own.
    sandbox = [] if os.geteuid() else ["--no-sandbox"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=[*ARGUMENTS, *sandbox])
        yield browser
        browser.close()


def _give_up(reason: str) -> None:
    if os.environ.get("MEMLAB_BROWSER") == REQUIRED:
        pytest.fail(reason)
    pytest.skip(reason)
