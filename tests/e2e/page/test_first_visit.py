"""Tests the first steps of a user on the page of a new server: pushing a model, and showing it a picture."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.support.browser import PHONE, visit
from tests.support.compiled import EXAMPLES
from tests.support.serving import INT8, Served

STAGES = 9


@pytest.fixture(scope="module")
def page(browser: Browser, served: Served) -> Iterator[Page]:
    with visit(browser, served.url) as page:
        yield page


def show_digit(page: Page, digit: int) -> None:
    expect(page.locator("#model-title")).to_be_visible()
    page.set_input_files("#labels", EXAMPLES / "labels.txt")
    page.set_input_files("#picture", EXAMPLES / "digits" / f"{digit}.png")
    best = page.locator("#answer .classes li").first
    expect(best.locator(".name")).to_have_text(str(digit))
    expect(best.locator(".value")).to_have_text(re.compile(r"^\d\d\.\d %$"))


def test_a_model_is_pushed_built_and_classifies_a_picture(page: Page) -> None:
    expect(page.locator("#matrix")).to_contain_text("There is no model yet")
    page.set_input_files("#model-file", EXAMPLES / INT8)
    name = page.get_by_role("region", name="Push a model").get_by_label("Name")
    expect(name).to_have_value("digits_int8")
    name.fill("digits")
    page.get_by_role("button", name="Push and compile").click()
    expect(page.locator(".stages li.current")).to_have_count(1)
    expect(page.locator(".stages li.done")).to_have_count(STAGES)
    expect(page.locator("#matrix .state.succeeded").filter(has_text="built")).to_have_count(1)
    expect(page.locator("#witnesses .verdict .state.succeeded")).to_have_text("equal")
    expect(page.locator("#witnesses .verdict")).to_contain_text("checked against LiteRT")
    expect(page.locator("#witnesses .verdict")).to_contain_text("all 2,780 values from 278 inputs are equal")
    show_digit(page, 2)
    expect(page.locator("#matrix .state.succeeded").filter(has_text="ready")).to_have_count(1)
    expect(page.locator("#now")).to_contain_text("1 answered, 0 refused")
    expect(page.locator("#latency")).to_contain_text("of 1 (last minute)")


def test_nothing_is_wider_than_a_phone_screen(browser: Browser, page: Page, served: Served) -> None:
    with visit(browser, served.url, width=PHONE, has_touch=True, is_mobile=True) as phone:
        show_digit(phone, 7)
        expect(phone.locator("#layers li")).not_to_have_count(0)
        expect(phone.get_by_text("Take a photo")).to_be_visible()
        assert phone.evaluate("document.documentElement.scrollWidth") == PHONE
