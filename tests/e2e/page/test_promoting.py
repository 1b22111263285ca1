"""Tests of promoting versions on the page, and of reverting a promotion."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.support.browser import DESKTOP, PHONE, visit
from tests.support.serving import UINT8, Served

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def two(digits: Served) -> Served:
    """The server, with a second version; `stable` is the first."""
    assert digits.ended(digits.push(UINT8)["id"])["state"] == "succeeded"
    assert digits.client.post("/api/v1/models/digits/promote", json={"version": 1}).status_code == 200
    return digits


@pytest.fixture(params=[DESKTOP, PHONE])
def page(request: pytest.FixtureRequest, browser: Browser, two: Served) -> Iterator[Page]:
    with visit(browser, two.url, width=request.param) as page:
        expect(page.locator("#versions li")).to_have_count(2)
        yield page


def stable(served: Served) -> dict[str, Any]:
    (alias,) = served.client.get("/api/v1/models/digits/aliases").json()["aliases"]
    return {name: alias[name] for name in ("version", "canary")}


def test_a_version_is_tried_promoted_and_reverted(page: Page, two: Served) -> None:
    page.get_by_role("button", name="Promote version 2").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Promote version 2 of digits?")
    expect(dialog).to_contain_text("Version 1 answers now")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.get_by_label("Percent").fill("10")
    page.keyboard.press("Enter")
    expect(page.locator("#versions")).to_contain_text("stable 10 %")
    assert stable(two) == {"version": 1, "canary": {"version": 2, "percent": 10}}

    page.get_by_role("button", name="Promote version 2").click()
    expect(dialog).to_contain_text("Version 1 answers 90 % of the requests now, and version 2 the others.")
    dialog.get_by_role("button", name="Promote").click()
    expect(dialog).to_have_count(0)
    expect(page.locator("#versions li").first).to_contain_text(re.compile(r"stable(?! \d)"))
    assert stable(two) == {"version": 2, "canary": None}

    page.get_by_role("button", name="Roll back").click()
    expect(dialog).to_contain_text("Version 1 will answer again")
    dialog.get_by_role("button", name="Roll back").click()
    expect(dialog).to_have_count(0)
    assert stable(two) == {"version": 1, "canary": None}


def test_canceling_the_dialog_changes_nothing(page: Page, two: Served) -> None:
    page.get_by_role("button", name="Promote version 2").click()
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.get_by_role("button", name="Promote version 2").click()
    page.get_by_role("button", name="Cancel").click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert stable(two) == {"version": 1, "canary": None}


def test_an_error_of_the_server_is_shown_in_the_dialog(browser: Browser, two: Served) -> None:
    with visit(browser, two.url, may_fail=True) as page:
        page.get_by_role("button", name="Promote version 2").click()
        page.route("**/promote", lambda route: route.fulfill(status=503, json={"detail": "It cannot be loaded."}))
        page.get_by_role("dialog").get_by_role("button", name="Promote").click()
        expect(page.get_by_role("dialog")).to_contain_text("It cannot be loaded.")
        page.unroute("**/promote")
        page.get_by_role("dialog").get_by_role("button", name="Promote").click()
        expect(page.get_by_role("dialog")).to_have_count(0)
    assert two.client.post("/api/v1/models/digits/rollback").status_code == 200
