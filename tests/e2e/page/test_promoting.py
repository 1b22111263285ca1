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
    with visit(browser, two.url, "/models/digits/2/rollout", width=request.param) as page:
        expect(page.locator("#versions li")).to_have_count(2)
        yield page


def stable(served: Served) -> dict[str, Any]:
    (alias,) = served.client.get("/api/v1/models/digits/aliases").json()["aliases"]
    return {name: alias[name] for name in ("version", "canary")}


def test_a_version_is_tried_promoted_and_reverted(page: Page, two: Served) -> None:
    change = page.locator("#promote-change")
    expect(change).to_contain_text(
        "Now, version 1 answers all requests. After the promotion, version 2 will answer all"
    )
    page.get_by_label("Share of the requests").fill("10")
    expect(change).to_contain_text("version 2 will answer 10 %, and version 1 the others")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.get_by_role("button", name="Promote version 2").click()
    expect(page.locator("#versions")).to_contain_text("stable 10 %")
    expect(page.locator("#comparison [data-version]")).to_have_count(2)
    assert stable(two) == {"version": 1, "canary": {"version": 2, "percent": 10}}

    expect(change).to_contain_text("Now, version 1 answers 90 % of the requests, and version 2 10 %.")
    page.get_by_label("Share of the requests").fill("100")
    page.get_by_role("button", name="Promote version 2").click()
    expect(page.locator("#versions li").first).to_contain_text(re.compile(r"stable(?! \d)"))
    expect(page.get_by_role("button", name="Promote version 2")).to_be_disabled()
    assert stable(two) == {"version": 2, "canary": None}

    page.get_by_role("button", name="Roll back to version 1").click()
    expect(page.locator("#versions li").last).to_contain_text(re.compile(r"stable(?! \d)"))
    assert stable(two) == {"version": 1, "canary": None}


def test_moving_the_slider_changes_nothing(page: Page, two: Served) -> None:
    page.get_by_label("Share of the requests").fill("50")
    page.get_by_role("link", name="Layers").click()
    expect(page.locator("#layers")).to_be_visible()
    assert stable(two) == {"version": 1, "canary": None}


def test_an_error_of_the_server_is_shown(browser: Browser, two: Served) -> None:
    with visit(browser, two.url, "/models/digits/2/rollout", may_fail=True) as page:
        promote = page.get_by_role("button", name="Promote version 2")
        page.route("**/promote", lambda route: route.fulfill(status=503, json={"detail": "It cannot be loaded."}))
        promote.click()
        expect(page.locator("#promotion .error")).to_contain_text("It cannot be loaded.")
        page.unroute("**/promote")
        promote.click()
        expect(page.locator("#promotion .error")).to_have_count(0)
    assert two.client.post("/api/v1/models/digits/rollback").status_code == 200
