"""Opens the web page in Chromium, and checks that it causes no errors and does not contact other servers."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Dialog, Error, Page, Request, expect, sync_playwright

from tests.support.waiting import WORK_TIMEOUT_S

DESKTOP, PHONE = 1280, 360  # pixels
_HEIGHT = 740
_WAIT_MS = 1000 * WORK_TIMEOUT_S


@contextmanager
def chromium(*flags: str) -> Iterator[Browser]:
    """Starts the distribution's Chromium without a window, with additional `flags`. Skips the test if it is not
    installed.
    """
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        pytest.skip("the page is NOT tested: Chromium is not installed (apt-get install chromium)")
    expect.set_options(timeout=_WAIT_MS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu", *flags])
        try:
            yield browser
        finally:
            browser.close()


class _ConsoleErrors:
    """The list of errors of a page, including requests to other servers."""

    def __init__(self, page: Page, url: str, may_fail: bool) -> None:
        self.found: list[str] = []
        self._url, self._may_fail = url, may_fail
        page.on("console", self._record_message)
        page.on("pageerror", self._record_exception)
        page.on("dialog", self._record_dialog)
        page.on("request", self._record_request)

    def _record_message(self, message: ConsoleMessage) -> None:
        is_of_answer = message.text.startswith("Failed to load resource")
        if message.type in ("error", "warning") and not (self._may_fail and is_of_answer):
            self.found.append(message.text)

    def _record_exception(self, error: Error) -> None:
        self.found.append(f"exception: {error}")

    def _record_dialog(self, dialog: Dialog) -> None:
        self.found.append(f"a script said {dialog.message!r}")
        dialog.dismiss()

    def _record_request(self, request: Request) -> None:
        if not request.url.startswith((f"{self._url}/", f"blob:{self._url}/")):
            self.found.append(f"asked {request.url}")


@contextmanager
def visit(
    browser: Browser, url: str, at: str = "", width: int = DESKTOP, may_fail: bool = False, **context: Any
) -> Iterator[Page]:
    """Opens the page at `url` in a new profile. At the end, checks that the console contains no error and that no other
    server was contacted.

    Args:
        at: the address within the page, such as `/models/digits/1/layers`.
        may_fail: true if responses may be errors, which the browser reports in the console.
        context: options of the browser's context.
    """
    with browser.new_context(viewport={"width": width, "height": _HEIGHT}, **context) as profile:
        page = profile.new_page()
        page.set_default_timeout(_WAIT_MS)
        errors = _ConsoleErrors(page, url, may_fail)
        page.goto(f"{url}/#{at}")
        yield page
        assert not errors.found, errors.found
