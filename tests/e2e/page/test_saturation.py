"""Tests of the counts of live values that the page shows for a model."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from tests.support.browser import DESKTOP, PHONE, visit
from tests.support.serving import Served

pytestmark = pytest.mark.slow

_ASKED = re.compile(r"/api/v1/models/[^/]+/saturation\?version=\d+$")
_BINS = 192


def tensor(name: str, clipped: float, state: str, **members: Any) -> dict[str, Any]:
    histogram = [0] * _BINS
    histogram[100], histogram[130] = 90, 10
    return {
        **{"tensor": name, "stored": {"low": -1.28, "high": 1.27}, "live": {"low": -1, "high": 5}, "values": 100},
        **{"below": 0, "above": 10, "activation": [], "clipped": clipped, "state": state},
        **{"bin_width": 0.04, "first_edge": -3.84, "histogram": histogram},
        **members,
    }


OUTSIDE: dict[str, Any] = {
    **{"name": "digits", "version": 1, "share": 0.001, "state": "outside", "reason": None, "limit": 0.01, "days": 2},
    **{"samples": 1234, "dropped": 5},
    "tensors": [
        tensor("inner", 0.0, "within", activation=["low"]),
        tensor("<b>first</b>", 0.125, "outside"),
    ],
}


@pytest.fixture
def page(browser: Browser, digits: Served) -> Iterator[Page]:
    with visit(browser, digits.url, "/models/digits/1/accuracy", may_fail=True) as page:
        yield page


def answer(page: Page, document: dict[str, Any]) -> None:
    """Replaces the server's response from the next load of the page on."""

    def respond(route: Route) -> None:
        route.fulfill(json=document)

    page.route(_ASKED, respond)
    page.reload()


def test_a_model_without_samples_shows_the_reason(browser: Browser, digits: Served) -> None:
    with visit(browser, digits.url, "/models/digits/1/accuracy") as page:
        expect(page.locator("#saturation")).to_have_text("waiting no request was sampled yet; 1 of 1,000 is")


def test_the_tensors_are_sorted_by_their_clipped_values(page: Page) -> None:
    answer(page, OUTSIDE)
    card = page.locator("#saturation")
    expect(card.locator("p").first).to_have_text(re.compile("^outside.*requests of 2 days, 5 dropped$"))
    expect(card.locator(".warning")).to_have_text(
        "Live data leaves the calibrated range of <b>first</b>: 12.5 % of its values are clipped."
    )
    expect(card.locator("li .name")).to_have_text(["<b>first</b>", "inner"])
    expect(card.locator("li .value")).to_have_text(["12.5 % clipped", "0.0 % clipped"])
    expect(card.locator("li .note").first).to_have_text("calibrated -1.28 to 1.27 · live -1 to 5")
    expect(card.locator("li .note").last).to_contain_text("its low end is an activation's")
    first = card.locator("li").first
    expect(first.get_by_role("img")).to_have_attribute("aria-label", "calibrated -1.28 to 1.27, live -1 to 5")
    assert first.locator("rect.inside").count() == first.locator("rect.beyond").count() == 1


@pytest.mark.parametrize("width", [PHONE, DESKTOP])
def test_the_page_is_not_wider_than_the_window(browser: Browser, digits: Served, width: int) -> None:
    with visit(browser, digits.url, "/models/digits/1/accuracy", width=width, may_fail=True) as page:
        answer(page, OUTSIDE)
        expect(page.locator("#saturation li")).to_have_count(2)
        assert page.evaluate("document.documentElement.scrollWidth") == width
