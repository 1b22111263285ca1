"""Tests that untrusted text is shown as it is, and never becomes part of the page's markup."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Browser, Error, expect

from tests.support.browser import visit
from tests.support.compiled import EXAMPLES
from tests.support.serving import Served
from tests.support.tflite_builder import ModelBuilder, Quant

pytestmark = pytest.mark.slow

SCRIPT = "<img src=x onerror=alert(1)><script>alert(2)</script>"
QUANT = Quant(1 / 256, 0)


def named(input_name: str, output_name: str, operator: str = "RELU") -> bytes:
    builder = ModelBuilder()
    shape = (1, 16, 16, 1)
    x, y = (builder.tensor(name, shape, np.int8, QUANT) for name in (input_name, output_name))
    builder.operator(operator, [x], [y])
    return builder.build([x], [y])


def push(served: Served, name: str, model: bytes) -> dict[str, object]:
    build = served.client.put("/api/v1/models", params={"name": name}, content=model).json()
    return served.ended(build["id"])


def test_names_of_tensors(browser: Browser, served: Served) -> None:
    build = push(served, "relu", named(f"x{SCRIPT}", f"y{SCRIPT}"))
    assert build["state"] == "succeeded", build
    with visit(browser, served.url, "/models/relu") as page:
        expect(page.locator("#model-title")).to_have_text("relu 1")
        page.set_input_files("#picture", EXAMPLES / "digits" / "2.png")
        expect(page.locator("#answer")).to_contain_text(SCRIPT)
        for tab, position in (("Versions and rollout", "#versions"), ("Layers", "#layers-card"), ("API", "#signature")):
            page.get_by_role("link", name=tab).first.click()
            expect(page.locator(position)).to_contain_text(SCRIPT)
            assert not page.locator("main script, main img").count()


def test_why_a_build_failed(browser: Browser, served: Served) -> None:
    build = push(served, "sine", named(f"x{SCRIPT}", f"y{SCRIPT}", "SIN"))
    assert build["state"] == "failed", build
    assert SCRIPT in str(build["error"])
    with visit(browser, served.url, "/builds") as page:
        expect(page.locator("#builds .error")).to_contain_text(SCRIPT)


def test_labels(browser: Browser, digits: Served, tmp_path: Path) -> None:
    labels = tmp_path / "labels.txt"
    labels.write_text("\n".join([SCRIPT] * 10))
    with visit(browser, digits.url, "/models/digits/1") as page:
        expect(page.locator("#model-title")).to_have_text("digits 1")
        page.set_input_files("#labels", labels)
        page.set_input_files("#picture", EXAMPLES / "digits" / "2.png")
        expect(page.locator("#answer .classes .name").first).to_have_text(SCRIPT)


def test_injected_markup_would_run_no_script(browser: Browser, served: Served) -> None:
    # a separate context, because the browser logs to the console what it refused
    with browser.new_context() as profile:
        page = profile.new_page()
        page.goto(served.url)
        with pytest.raises(Error, match="TrustedHTML"):
            page.evaluate("(text) => { document.body.innerHTML = text }", SCRIPT)
