"""Tests the first steps of a user on the page of a new server: pushing a model, and showing it a picture."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.support.accessibility import violations
from tests.support.browser import PHONE, visit
from tests.support.compiled import EXAMPLES
from tests.support.serving import INT8, Served

STAGES = 9


@pytest.fixture(scope="module")
def page(browser: Browser, served: Served) -> Iterator[Page]:
    with visit(browser, served.url) as page:
        yield page


def show_digit(page: Page, digit: int) -> None:
    page.set_input_files("#picture", EXAMPLES / "digits" / f"{digit}.png")
    best = page.locator("#answer .classes li").first
    expect(best.locator(".name")).to_have_text(str(digit))
    expect(best.locator(".value")).to_have_text(re.compile(r"^\d\d\.\d %$"))


def test_a_model_is_pushed_built_and_classifies_a_picture(page: Page) -> None:
    expect(page.locator("#matrix")).to_contain_text("There is no model yet")
    page.get_by_role("button", name="Push a model").click()
    dialog = page.get_by_role("dialog")
    page.set_input_files("#model-file", EXAMPLES / INT8)
    page.set_input_files("#push-labels", EXAMPLES / "labels.txt")
    name = dialog.get_by_label("Name")
    expect(name).to_have_value("digits_int8")
    name.fill("digits")
    dialog.get_by_role("button", name="Push and compile").click()
    expect(page).to_have_url(re.compile("#/builds/"))
    expect(page.locator(".stages li.done")).to_have_count(STAGES)
    page.get_by_role("link", name="digits 1").click()
    show_digit(page, 2)
    expect(page.locator("#code pre")).to_contain_text(
        re.compile("^curl .*@2.png 'http://.*/api/v1/models/digits/predict")
    )
    page.get_by_role("link", name="Accuracy and checks").click()
    expect(page.locator("#witnesses .verdict .state.succeeded")).to_have_text("equal")
    expect(page.locator("#witnesses .verdict")).to_contain_text("all 2,780 values from 278 inputs are equal")
    page.get_by_role("link", name="Models").first.click()
    expect(page.locator("#matrix .state.succeeded").filter(has_text="built")).to_have_count(1)
    expect(page.locator("#matrix .state.succeeded").filter(has_text="ready")).to_have_count(1)
    expect(page.locator("#now")).to_contain_text("1 answered, 0 refused")
    expect(page.locator("#now")).to_contain_text("last minute")


def test_every_view_has_an_address(page: Page) -> None:
    """Back and Reload show the views that the test before visited."""
    page.go_back()
    expect(page.locator("#witnesses .verdict")).to_be_visible()
    page.reload()
    expect(page.locator("#model-title")).to_have_text("digits 1")
    expect(page.locator("#witnesses .verdict")).to_be_visible()
    page.go_back()
    expect(page.locator("#picture-drop")).to_be_visible()


def test_nothing_is_wider_than_a_phone_screen(browser: Browser, page: Page, served: Served) -> None:
    with visit(browser, served.url, "/models/digits", width=PHONE, has_touch=True, is_mobile=True) as phone:
        show_digit(phone, 7)
        expect(phone.get_by_text("Take a photo")).to_be_visible()
        assert phone.evaluate("document.documentElement.scrollWidth") == PHONE
        phone.get_by_role("link", name="Layers").click()
        expect(phone.locator("#layers li")).not_to_have_count(0)
        assert phone.evaluate("document.documentElement.scrollWidth") == PHONE


def test_the_form_describes_sounds_and_tables(page: Page, served: Served) -> None:
    page.goto(f"{served.url}/#/models?push")
    page.get_by_text("Sounds and tables").click()
    page.get_by_label("Samples of a sound in a second").fill("16000")
    page.get_by_label("Shift and scale a sound").select_option("no")
    page.get_by_label("Columns of a table").fill("alcohol, sugar,ph")
    program = """async () => {
      const { queryOf } = await import("/page/push/dialog.js");
      return Object.fromEntries(queryOf(new FormData(document.querySelector("#push form")), "m"));
    }"""
    described = {"sampling_rate": "16000", "standardize": "false", "columns": "alcohol, sugar,ph"}
    assert page.evaluate(program) == {"name": "m", "target": "host", **described}


def test_builds_have_a_chart_of_their_durations(page: Page, served: Served) -> None:
    broken = httpx.put(f"{served.url}/api/v1/models?name=broken", content=(EXAMPLES / INT8).read_bytes()[:3000])
    assert served.ended(broken.json()["id"])["state"] == "failed"
    page.goto(f"{served.url}/#/builds")
    chart = page.get_by_role("img", name=re.compile("^Durations of 2 builds; the longest took .* s$"))
    expect(chart.locator("canvas")).to_be_visible()
    expect(page.locator("#durations .legend span")).to_have_text(["succeeded", "failed"])


# Each view, with an element that it shows when it is complete.
VIEWS = {
    "/models": "#now",
    "/models?push": "#model-file",
    "/models/digits/1/try": "#picture-drop",
    "/models/digits/1/rollout": "#promotion",
    "/models/digits/1/accuracy": "#witnesses .verdict",
    "/models/digits/1/layers": "#layers li",
    "/models/digits/1/api": "#code pre",
    "/builds": "#builds li",
    "/builds/BUILD": "#build-facts",
    "/quantize": "#quantize",
    "/pools": "#workers-card li",
    "/keys": "#new-key",
    "/settings": "#targets li",
}


@pytest.mark.parametrize("colours", ["light", "dark"])
def test_axe_finds_nothing_wrong_with_any_view(
    browser: Browser, page: Page, served: Served, colours: Literal["light", "dark"]
) -> None:
    """The fixture `page` stands for the tests before, which push the model."""
    (build, *_) = httpx.get(f"{served.url}/api/v1/builds").json()["builds"]
    found = {}
    with visit(browser, served.url, color_scheme=colours) as view:
        for address, complete in VIEWS.items():
            view.goto(f"{served.url}/#{address.replace('BUILD', build['id'])}")
            expect(view.locator(complete).first).to_be_visible()
            found[address] = violations(view)
    assert {address: problems for address, problems in found.items() if problems} == {}


def test_axe_finds_what_is_wrong(page: Page) -> None:
    page.evaluate("document.querySelector('main').append(document.createElement('img'))")
    assert [each for each in violations(page) if each.startswith("image-alt: <img>")]
