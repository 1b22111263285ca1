"""examples/browser: a page of another origin that classifies a file, and the pictures of a camera."""

from __future__ import annotations

import shutil

import pytest
from playwright.sync_api import expect

from tests.e2e.javascript.conftest import ADMIN_KEY, Site
from tests.support.browser import chromium
from tests.support.compiled import EXAMPLES
from tests.support.serving import Served

pytestmark = pytest.mark.slow


def test_the_example_classifies_a_file_and_the_camera(site: Site, served: Served) -> None:
    shutil.copy(EXAMPLES / "browser" / "index.html", site.folder / "example.html")
    camera = "--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream"
    with chromium(*camera) as browser:
        page = browser.new_page()
        page.goto(f"{site.origin}/example.html")
        page.get_by_label("Server").fill(served.url)
        page.get_by_label("Picture").set_input_files(EXAMPLES / "digits" / "7.png")
        expect(page.get_by_role("alert")).to_contain_text("an API key is required")
        page.get_by_label("API key").fill(ADMIN_KEY)
        page.get_by_label("Picture").set_input_files(EXAMPLES / "digits" / "3.png")
        expect(page.get_by_role("row")).to_have_count(5)
        expect(page.get_by_role("row").first).to_contain_text("digit 3")
        expect(page.get_by_role("alert")).to_have_text("")
        with page.expect_response(lambda response: "/predict" in response.url) as answered:
            page.get_by_role("button", name="Use the camera").click()
        assert answered.value.request.headers["content-type"] == "image/jpeg"
        assert answered.value.ok
        page.get_by_role("button", name="Stop").click()
        expect(page.locator("video")).to_be_hidden()
        page.get_by_label("Server").fill("http://127.0.0.1:9")
        page.get_by_label("Picture").set_input_files(EXAMPLES / "digits" / "7.png")
        expect(page.get_by_role("alert")).to_contain_text(f"OCTET_CORS_ORIGINS list {site.origin}?")
