"""Tests of the table of pools that the page shows for a model."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from tests.support.browser import DESKTOP, PHONE, visit
from tests.support.serving import Served

pytestmark = pytest.mark.slow

_UNKNOWN = "\N{EN DASH}"
_ASKED = re.compile(r"/api/v1/models/[^/]+/matrix\?version=\d+$")
_BUILT = {
    **{"pool": "vnni", "target": "x86-64-v4+vnni", "workers": 2, "capacity": 8, "loaded": 1, "state": "ready"},
    **{"build": "sha256:1", "error": None, "artifact": "sha256:2", "numerics": "litert-reference", "verified": True},
    **{"outcome": "equal"},
    **{
        "checked": "equal to LiteRT",
        "measuring": False,
        "measured": True,
        "machine": "a CPU",
        "threads": 1,
    },
    **{"p50_s": 0.00025, "p99_s": 0.0004, "per_s": 3900.0, "peak_percent": 41.0, "memory_bytes": 3_200_000},
    **{"cost_per_million": 0.0123},
}
_UNMEASURED = dict.fromkeys(("machine", "threads", "p50_s", "p99_s", "per_s", "peak_percent", "cost_per_million"))
_NOT_BUILT = _UNMEASURED | dict.fromkeys(("build", "artifact", "numerics", "verified", "checked", "memory_bytes"))
CLUSTER: list[dict[str, Any]] = [
    _BUILT,
    {**_BUILT, "pool": "old", "target": "x86-64-v3", "p50_s": 0.0011, "per_s": 900.0, "cost_per_million": 0.0301},
    {**_BUILT, **_UNMEASURED, "pool": "<b>arm</b>", "target": "aarch64", "verified": False, "measured": False},
    {**_BUILT, **_NOT_BUILT, "pool": "spare", "target": "x86-64-v2", "state": "none", "workers": 1, "loaded": 0},
    {
        **{**_BUILT, **_NOT_BUILT, "pool": None, "target": "cuda-sm_80", "state": "failed", "workers": 0},
        **{"build": "sha256:3", "error": "unsupported_operator"},
    },
]


@pytest.fixture
def page(browser: Browser, digits: Served) -> Iterator[Page]:
    with visit(browser, digits.url, "/pools/digits", may_fail=True) as page:
        yield page


def answer(page: Page, rows: list[dict[str, Any]]) -> None:
    """Replaces the server's response from the next load of the page on. Requests to measure are refused."""

    def respond(route: Route) -> None:
        if route.request.method == "POST":
            route.fulfill(status=403, json={"detail": "the key lacks the scope push"})
        else:
            route.fulfill(json=_matrix(rows))

    page.route(_ASKED, respond)
    page.reload()


def _matrix(rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {"name": "digits", "version": 1, "rows": rows}


def test_a_single_server_is_one_pool_that_measures_on_request(browser: Browser, digits: Served) -> None:
    with visit(browser, digits.url, "/pools/digits") as page:
        pools = page.locator("#pools")
        rows = pools.locator("tbody tr")
        expect(rows).to_have_count(1)
        expect(rows.first).to_contain_text("x86-64")
        expect(rows.first.locator("[data-column=State]")).to_have_text("ready")
        expect(pools).to_contain_text("no other pool")
        expect(pools).to_contain_text("OCTET_POOL_PRICES")
        p99 = rows.first.locator("td").nth(3)
        expect(p99).to_have_text(_UNKNOWN)
        pools.get_by_role("button", name="Measure it").click()
        expect(p99).to_have_text(re.compile("[µm]s"))
        expect(rows.first.locator("[data-column='Per second']")).to_have_text(re.compile(r"\d"))
        expect(pools.get_by_role("button")).to_have_count(0)


def test_pools_are_compared(page: Page) -> None:
    answer(page, CLUSTER)
    rows = page.locator("#pools tbody tr")
    expect(rows).to_have_count(5)
    columns = ["Pool", "State", "Numerics", "p50", "p99", "Per second", "Memory", "% of peak", "Cost per million"]
    assert page.locator("#pools thead th").all_inner_texts() == columns
    expect(rows.nth(0).locator("th")).to_have_text(re.compile("vnni.*2 workers, 1 with it in memory"))
    cells = ["ready", "litert-referenceequal", "250 µsfastest", "400 µs", "3.9 k", "3.2 MB", "41.0 %", "0.0123cheapest"]
    expect(rows.nth(0).locator("td")).to_have_text(cells)
    expect(rows.nth(1).locator("[data-column=p50]")).to_have_text("1.1 ms")
    expect(rows.nth(2).locator("th b")).to_have_text("<b>arm</b>")
    expect(rows.nth(2).locator("td")).to_have_text(
        ["ready", "litert-referencenot verified", _UNKNOWN, _UNKNOWN, _UNKNOWN, "3.2 MB", _UNKNOWN, _UNKNOWN]
    )
    expect(rows.nth(3).locator("[data-column=State]")).to_have_text("not built")
    expect(rows.nth(4).locator("th")).to_have_text(re.compile("no pool.*no worker has this target"))
    expect(page.locator("#pools li")).to_contain_text(["unsupported_operator"])
    expect(page.get_by_role("button", name="Measure on every pool")).to_be_visible()


def test_an_empty_table_has_an_explanation(page: Page) -> None:
    answer(page, [])
    expect(page.locator("#pools")).to_have_text(re.compile("^No worker pool is running, and no build was requested"))
    expect(page.locator("#pools table")).to_have_count(0)


def test_loading_and_errors_are_shown(page: Page) -> None:
    expect(page.locator("#pools tbody tr")).to_have_count(1)  # now no request of this load is in progress any more
    routes: list[Route] = []

    def respond(route: Route) -> None:
        routes.append(route)
        if len(routes) > 1:
            route.fulfill(json=_matrix(CLUSTER))

    page.route(_ASKED, respond)
    page.reload()
    pools = page.locator("#pools")
    expect(pools).to_have_text("Loading…")
    expect(pools).to_have_attribute("aria-busy", "true")
    routes[0].fulfill(status=503, json={"detail": "the database is away", "hint": "wait"})
    expect(page.locator("#pools-problem")).to_contain_text("the database is away")
    expect(pools.locator("tbody tr")).to_have_count(5)  # the next response
    expect(page.locator("#pools-problem")).to_be_empty()
    expect(pools).to_have_attribute("aria-busy", "false")


def test_a_refused_measurement_leaves_the_table(page: Page) -> None:
    answer(page, CLUSTER)
    page.get_by_role("button", name="Measure on every pool").click()
    expect(page.locator("#pools-problem")).to_contain_text("lacks the scope push")
    expect(page.locator("#pools tbody tr")).to_have_count(5)


@pytest.mark.parametrize("width", [PHONE, 700, 1000, DESKTOP])
def test_the_page_is_not_wider_than_the_window(browser: Browser, digits: Served, width: int) -> None:
    with visit(browser, digits.url, "/pools/digits", width=width, may_fail=True) as page:
        answer(page, CLUSTER)
        expect(page.locator("#pools tbody tr")).to_have_count(5)
        assert page.evaluate("document.documentElement.scrollWidth") == width
        if width == DESKTOP:
            assert page.evaluate("(e => e.scrollWidth === e.clientWidth)(document.querySelector('#pools .sideways'))")
