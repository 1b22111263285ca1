"""The page for those who have no key, no server, no mouse, or not the best eyes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from tests.support.browser import PHONE, visit
from tests.support.compiled import EXAMPLES
from tests.support.serving import Served

pytestmark = pytest.mark.slow

KEY = "octet_key"
CONTRAST = 4.5  # of text, as WCAG 2.2 wants it at level AA


@pytest.fixture
def guarded(browser: Browser, digits: Served) -> Iterator[Page]:
    """The page of a server that answers nobody without the key, apart from its files."""

    def guard(route: Route) -> None:
        if route.request.headers.get("authorization") == f"Bearer {KEY}":
            route.continue_()
        else:
            route.fulfill(status=401, json={"detail": "a key is needed", "hint": "octet keys create"})

    with visit(browser, digits.url, may_fail=True) as page:
        for path in ("api", "v2", "metrics"):
            page.route(f"{digits.url}/{path}**", guard)
            page.route(f"{digits.url}/{path}/**", guard)
        page.reload()
        yield page


def test_a_key_is_asked_for_and_kept_for_the_tab(guarded: Page) -> None:
    expect(guarded.get_by_role("dialog")).to_contain_text("a key is needed")
    guarded.get_by_label("API key").fill("wrong")
    guarded.get_by_role("button", name="Use it").click()
    expect(guarded.get_by_role("dialog")).to_be_visible()
    guarded.get_by_label("API key").fill(KEY)
    guarded.keyboard.press("Enter")
    expect(guarded.locator("#server")).to_contain_text("ready")
    guarded.set_input_files("#picture", EXAMPLES / "digits" / "4.png")
    expect(guarded.locator("#answer .classes .name").first).to_have_text("class 4")
    guarded.reload()
    expect(guarded.locator("#server")).to_contain_text("ready")
    expect(guarded.get_by_role("dialog")).to_have_count(0)
    assert guarded.evaluate("[sessionStorage.length, localStorage.length, document.cookie]") == [1, 0, ""]


def test_somebody_without_a_key_is_asked_once(guarded: Page) -> None:
    guarded.get_by_role("button", name="Not now").click()
    expect(guarded.locator("#server")).to_contain_text("no access")
    guarded.wait_for_timeout(5000)  # two more rounds of questions
    expect(guarded.get_by_role("dialog")).to_have_count(0)
    guarded.get_by_role("button", name="Enter a key").click()
    guarded.get_by_label("API key").fill(KEY)
    guarded.keyboard.press("Enter")
    expect(guarded.locator("#server")).to_contain_text("ready")


def test_a_server_that_is_away_comes_back(browser: Browser, digits: Served) -> None:
    with visit(browser, digits.url, may_fail=True) as page:
        expect(page.locator("#server")).to_contain_text("ready")
        page.context.set_offline(True)
        expect(page.locator("#server")).to_contain_text("not reachable")
        page.context.set_offline(False)
        expect(page.locator("#server")).to_contain_text("ready")


def test_everything_can_be_reached_and_named_without_a_mouse(browser: Browser, digits: Served) -> None:
    with visit(browser, digits.url) as page:
        expect(page.locator("#layers li")).not_to_have_count(0)
        wanted = page.locator("button:visible, input:visible, select:visible, summary:visible").count()
        reached: dict[str, None] = {}
        for _ in range(3 * wanted):
            page.keyboard.press("Tab")
            focused = page.evaluate(
                "() => { const e = document.activeElement; return e === document.body ? '' : e.tagName + ' ' +"
                " (e.labels?.[0]?.textContent ?? e.ariaLabel ?? e.textContent ?? '').trim().slice(0, 40) }"
            )
            reached[focused] = None
        names = [each.partition(" ") for each in reached if each]
        assert all(name for _, _, name in names), names
        assert len([tag for tag, _, _ in names if tag in ("BUTTON", "INPUT", "SELECT", "SUMMARY")]) >= wanted
        page.locator("#choose-digits-1").focus()
        page.keyboard.press("Enter")
        expect(page.locator("#model-title")).to_be_focused()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [PHONE, 1280])
def test_text_stands_out(browser: Browser, digits: Served, scheme: str, width: int) -> None:
    program = """() => {
      const parsed = (color) => color.match(/[\\d.]+/g).map(Number);
      const light = ([r, g, b]) => [[r, 0.2126], [g, 0.7152], [b, 0.0722]]
        .map(([c, weight]) => weight * (c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4))
        .reduce((sum, part) => sum + part);
      const ground = (e) => { for (; e; e = e.parentElement) {
        const color = parsed(getComputedStyle(e).backgroundColor);
        if ((color[3] ?? 1) === 1) return color;
      } };
      return [...document.querySelectorAll("body *")].filter((e) => e.checkVisibility()
        && [...e.childNodes].some((node) => node.nodeType === Node.TEXT_NODE && node.data.trim())).map((e) => {
          const [text, behind] = [light(parsed(getComputedStyle(e).color)), light(ground(e))];
          return [(Math.max(text, behind) + 0.05) / (Math.min(text, behind) + 0.05), e.textContent.trim()];
      }).sort(([a], [b]) => a - b);
    }"""
    with visit(browser, digits.url, width=width, color_scheme=scheme) as page:
        expect(page.locator("#layers li")).not_to_have_count(0)
        found = page.evaluate(program)
        assert len(found) > 40
        assert found[0][0] >= CONTRAST, found[0]
