"""Tests of the page: without a server, with the keyboard only, and its contrast."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, expect

from tests.support.browser import PHONE, visit
from tests.support.serving import Served

pytestmark = pytest.mark.slow

CONTRAST = 4.5  # the minimum of WCAG 2.2 for text at level AA


def test_the_page_recovers_from_an_outage_of_the_server(browser: Browser, digits: Served) -> None:
    with visit(browser, digits.url, may_fail=True) as page:
        expect(page.locator("#server")).to_contain_text("ready")
        page.context.set_offline(True)
        expect(page.locator("#server")).to_contain_text("not reachable")
        page.context.set_offline(False)
        expect(page.locator("#server")).to_contain_text("ready")


def test_all_controls_have_names_and_are_reachable_by_keyboard(browser: Browser, digits: Served) -> None:
    with visit(browser, digits.url, "/models/digits/1/layers") as page:
        expect(page.locator("#layers li")).not_to_have_count(0)
        wanted = page.locator("button:visible, input:visible, select:visible, summary:visible").count()
        reached: dict[str, None] = {}
        for _ in range(3 * wanted):
            page.keyboard.press("Tab")
            focused = page.evaluate(
                "() => { const e = document.activeElement; return e === document.body ? '' : e.tagName + '#' + e.id +"
                " ' ' + (e.labels?.[0]?.textContent ?? e.ariaLabel ?? e.textContent ?? '').trim().slice(0, 40) }"
            )
            reached[focused] = None
        names = [each.partition(" ") for each in reached if each]
        assert all(name for _, _, name in names), names
        assert (
            len([tag for tag, _, _ in names if tag.partition("#")[0] in ("BUTTON", "INPUT", "SELECT", "SUMMARY")])
            >= wanted
        )
        page.get_by_role("link", name="Models").first.focus()
        page.keyboard.press("Enter")
        expect(page.locator("#title")).to_be_focused()
        page.locator("#choose-digits-1").focus()
        page.keyboard.press("Enter")
        expect(page.locator("#title")).to_have_text("digits 1")
        expect(page.locator("#title")).to_be_focused()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [PHONE, 1280])
@pytest.mark.parametrize("tab", ["rollout", "accuracy", "layers"])
def test_text_has_enough_contrast(browser: Browser, digits: Served, scheme: str, width: int, tab: str) -> None:
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
    with visit(browser, digits.url, f"/models/digits/1/{tab}", width=width, color_scheme=scheme) as page:
        expect(page.locator("main .card li").first).to_be_visible()
        found = page.evaluate(program)
        assert len(found) > 20
        assert found[0][0] >= CONTRAST, found[0]
