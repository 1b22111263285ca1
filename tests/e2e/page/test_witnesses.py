"""What the page says that a model was checked against: green for another runtime that gave every value, and no more."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, expect

from service.cache import OciLayout
from service.core.artifact import Report
from tests.support.browser import visit
from tests.support.mxnet_models import packed
from tests.support.s8s8 import s8s8_network
from tests.support.serving import Served
from tests.support.tflite_arithmetic import reduction

pytestmark = pytest.mark.slow


def shown(page: Page, served: Served, name: str, model: bytes) -> None:
    """Pushes a model, and chooses it on the page."""
    build = served.client.put("/api/v1/models", params={"name": name}, content=model).json()
    assert served.ended(build["id"])["state"] == "succeeded", build
    page.locator(f"#choose-{name}-1").click()
    expect(page.locator("#model-title")).to_have_text(f"{name} 1")


def expect_verdict(page: Page, kind: str, word: str) -> None:
    expect(page.locator(f"#witnesses .verdict .state.{kind}")).to_have_text(word)


def test_a_default_session_that_differs_is_told_beside_a_green_verdict(browser: Browser, served: Served) -> None:
    with visit(browser, served.url) as page:
        shown(page, served, "signed", s8s8_network())
        expect_verdict(page, "succeeded", "equal")
        expect(page.locator("#witnesses .verdict")).to_contain_text("session.qdqisint8allowed=1")
        default = page.locator("#witnesses li", has_text="a default session")
        expect(default).to_contain_text("values from 9 inputs differ")


def test_a_runtime_that_computes_otherwise_is_not_green(browser: Browser, served: Served) -> None:
    with visit(browser, served.url) as page:
        shown(page, served, "sum", reduction("SUM", one_type=True)(np.random.default_rng(0), np.int8))
        expect_verdict(page, "running", "different")
        expect(page.locator("#witnesses .verdict")).to_contain_text("differ")
        expect(page.locator("#witnesses .state.succeeded")).to_have_count(0)


def test_a_model_that_no_other_runtime_ran_is_not_green(browser: Browser, served: Served) -> None:
    with visit(browser, served.url) as page:
        shown(page, served, "mxnet", packed("sg_channels"))
        expect_verdict(page, "running", "own form only")
        expect(page.locator("#witnesses .verdict")).to_contain_text("checked against Octet's own canonical form only")
        expect(page.locator("#witnesses .state.succeeded")).to_have_count(0)


def test_a_report_of_an_older_octet_is_told_apart(browser: Browser, served: Served, folder: Path) -> None:
    old = {"mode": "litert-reference", "reference": "LiteRT 2.3.0", "verified": True, "checks": [], "formulas": {}}
    build = served.ended(served.push(name="older")["id"])
    OciLayout(folder / "data" / "store").attach(build["artifact"], Report.NUMERICS, json.dumps(old).encode())
    with visit(browser, served.url) as page:
        page.locator("#choose-older-1").click()
        expect_verdict(page, "queued", "unknown")
        expect(page.locator("#witnesses .verdict")).to_contain_text("older version of Octet")
