"""Tests of deleting models on the page. The page lists, for each build, the models that share it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.support.browser import visit
from tests.support.serving import UINT8, Served

pytestmark = pytest.mark.slow


@pytest.fixture
def page(browser: Browser, digits: Served) -> Iterator[Page]:
    with visit(browser, digits.url, may_fail=True) as page:  # the page may request the model that is being deleted
        yield page


def versions(served: Served, name: str) -> list[int]:
    response = served.client.get(f"/api/v1/models/{name}")
    return [] if response.status_code == 404 else [each["version"] for each in response.json()["versions"]]


def choose(page: Page, name: str, version: int = 1, tab: str = "Versions and rollout") -> None:
    page.locator(f"#choose-{name}-{version}").click()
    expect(page.locator("#model-title")).to_have_text(f"{name} {version}")
    page.get_by_role("link", name=tab).click()


def test_a_second_name_shows_the_checks_and_the_layers_of_the_first(page: Page, digits: Served) -> None:
    assert digits.push(name="again")["state"] == "succeeded"
    choose(page, "again", tab="Accuracy and checks")
    expect(page.locator("#witnesses .bars li").first).to_be_visible()
    page.get_by_role("link", name="Layers").click()
    expect(page.locator("#layers li").first).to_be_visible()
    page.get_by_role("link", name="Builds").click()
    expect(page.locator("#builds li").first).to_contain_text("digits 1, again 1")


def test_a_model_is_deleted_after_the_confirmation(page: Page, digits: Served) -> None:
    digits.push(name="again")
    choose(page, "again")
    page.get_by_role("button", name="Delete model").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Delete model again, with all its versions?")
    dialog.get_by_role("button", name="Cancel").click()
    assert versions(digits, "again") == [1]
    page.get_by_role("button", name="Delete model").click()
    dialog.get_by_role("button", name="Delete").click()
    expect(dialog).to_have_count(0)
    expect(page.locator("#choose-digits-1")).to_be_visible()
    expect(page.locator("#choose-again-1")).to_have_count(0)
    page.get_by_role("link", name="Builds").click()
    expect(page.locator("#builds li").first).not_to_contain_text("again")
    assert versions(digits, "again") == []
    assert digits.label(4) == 4


def test_a_version_is_deleted_with_its_alias(page: Page, digits: Served) -> None:
    for file in ("digits_int8.tflite", UINT8):
        assert digits.ended(digits.push(file, name="both")["id"])["state"] == "succeeded"
    assert digits.client.post("/api/v1/models/both/promote", json={"version": 2}).status_code == 200
    choose(page, "both", 2)
    page.get_by_role("button", name="Delete version 2").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text('"stable" refers to it, and is deleted too.')
    dialog.get_by_role("button", name="Delete").click()
    expect(dialog).to_have_count(0)
    expect(page.locator("#model-title")).to_have_text("both 1")
    assert versions(digits, "both") == [1]
    assert digits.client.get("/api/v1/models/both/aliases").json() == {"aliases": []}


def test_a_failed_version_shows_the_reason(page: Page, digits: Served) -> None:
    broken = b"\x1c\x00\x00\x00TFL3" + bytes(range(100))
    build = digits.client.put("/api/v1/models", params={"name": "broken"}, content=broken).json()
    assert digits.ended(build["id"])["state"] == "failed"
    choose(page, "broken")
    expect(page.locator("#versions .state.failed")).to_have_text("failed")
    expect(page.locator("#versions li")).to_contain_text(digits.build(build["id"])["error"]["message"])
