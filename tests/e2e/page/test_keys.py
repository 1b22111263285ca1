"""Tests of the page of a server that requires an API key."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.support.browser import visit
from tests.support.compiled import EXAMPLES
from tests.support.serving import Served, environment
from tests.support.waiting import WORK_TIMEOUT_S

pytestmark = pytest.mark.slow


def make_key(folder: Path, *scopes: str) -> str:
    command = [
        sys.executable,
        "-m",
        "service.cli",
        "keys",
        "create",
        "page",
        "--data-dir",
        str(folder / "data"),
        "--json",
    ]
    options = [option for scope in scopes for option in ("--scope", scope)]
    made = subprocess.run(
        [*command, *options], check=True, env=environment(), capture_output=True, timeout=WORK_TIMEOUT_S
    )
    return str(json.loads(made.stdout)["key"])


@pytest.fixture(scope="module")
def key(digits: Served, folder: Path) -> str:
    """An API key. After it is created, the server requires keys."""
    return make_key(folder, "push", "predict", "metrics")


@pytest.fixture
def guarded(browser: Browser, digits: Served, key: str) -> Iterator[Page]:
    with visit(browser, digits.url, "/models/digits", may_fail=True) as page:
        yield page


def test_a_key_is_requested_and_stored_for_the_tab(guarded: Page, key: str) -> None:
    expect(guarded.get_by_role("dialog")).to_contain_text("key")
    guarded.get_by_label("API key").fill(f"{key}x")
    guarded.get_by_role("button", name="Use it").click()
    expect(guarded.get_by_role("dialog")).to_be_visible()
    guarded.get_by_label("API key").fill(key)
    guarded.keyboard.press("Enter")
    expect(guarded.locator("#server")).to_contain_text("ready")
    guarded.set_input_files("#picture", EXAMPLES / "digits" / "4.png")
    expect(guarded.locator("#answer .classes .name").first).to_have_text("class 4")
    guarded.reload()
    expect(guarded.locator("#server")).to_contain_text("ready")
    expect(guarded.get_by_role("dialog")).to_have_count(0)
    assert guarded.evaluate("[sessionStorage.length, localStorage.length, document.cookie]") == [1, 0, ""]


def test_the_key_is_requested_only_once(guarded: Page, key: str) -> None:
    guarded.get_by_role("button", name="Not now").click()
    expect(guarded.locator("#server")).to_contain_text("no access")
    guarded.wait_for_timeout(3000)  # two more attempts to connect
    expect(guarded.get_by_role("dialog")).to_have_count(0)
    guarded.get_by_role("button", name="Enter a key").click()
    guarded.get_by_label("API key").fill(key)
    guarded.keyboard.press("Enter")
    expect(guarded.locator("#server")).to_contain_text("ready")


def test_a_key_without_enough_scopes_can_be_replaced(guarded: Page, key: str, folder: Path) -> None:
    guarded.get_by_label("API key").fill(make_key(folder, "metrics"))
    guarded.keyboard.press("Enter")
    expect(guarded.locator("#server")).to_contain_text("lacks the scope")
    guarded.get_by_role("button", name="Enter a key").click()
    guarded.get_by_label("API key").fill(key)
    guarded.keyboard.press("Enter")
    expect(guarded.locator("#server")).to_contain_text("ready")


def test_a_predict_key_shows_models_and_sends_predictions(guarded: Page, folder: Path) -> None:
    guarded.get_by_label("API key").fill(make_key(folder, "predict"))
    guarded.keyboard.press("Enter")
    expect(guarded.locator("#server")).to_contain_text("allows predictions")
    guarded.set_input_files("#picture", EXAMPLES / "digits" / "4.png")
    expect(guarded.locator("#answer .classes .name").first).to_have_text("class 4")
    for link, count in (("Versions and rollout", 0), ("Layers", 0), ("Builds", 0), ("Pools", 0), ("API", 1)):
        expect(guarded.get_by_role("link", name=link, exact=True)).to_have_count(count)
    expect(guarded.get_by_role("button", name="Push a model")).to_have_count(0)
    guarded.get_by_role("link", name="Models").first.click()
    expect(guarded.locator("#matrix")).to_contain_text("digits")


def test_a_read_key_shows_everything(guarded: Page, folder: Path) -> None:
    guarded.get_by_label("API key").fill(make_key(folder, "read"))
    guarded.keyboard.press("Enter")
    expect(guarded.locator("#server")).to_contain_text("ready")
    guarded.get_by_role("link", name="Versions and rollout").click()
    expect(guarded.locator("#versions")).to_contain_text("version 1")
    expect(guarded.get_by_role("button", name="Promote version 1")).to_have_count(0)
    guarded.get_by_role("link", name="Builds").click()
    expect(guarded.locator("#builds")).to_contain_text("digits")


def test_an_admin_key_creates_and_revokes_keys(guarded: Page, folder: Path) -> None:
    guarded.get_by_label("API key").fill(make_key(folder, "admin"))
    guarded.keyboard.press("Enter")
    guarded.get_by_role("link", name="Keys").click()
    form = guarded.locator("#new-key")
    form.get_by_label("Name").fill("camera 7")
    form.get_by_role("button", name="Create the key").click()
    expect(form.locator("pre")).to_contain_text("octet_")
    guarded.get_by_role("button", name="Revoke camera 7").click()
    guarded.get_by_role("dialog").get_by_role("button", name="Revoke").click()
    expect(guarded.locator("#keys tr", has_text="camera 7")).to_contain_text("revoked")


def test_the_reference_is_shown_without_the_internet(browser: Browser, digits: Served) -> None:
    with visit(browser, digits.url, may_fail=True) as page:  # the page's requests need a key now
        page.goto(f"{digits.url}/docs")
        expect(page.locator("#reference")).to_contain_text("/v2/models/{model}/infer")
