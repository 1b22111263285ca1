"""Tests of the checks of a model that the page shows: green only if another runtime computed every value."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from service.cache import OciLayout
from service.core.artifacts.artifact import Report
from service.core.provenance.envelope import Envelope, Signature
from tests.support.browser import visit
from tests.support.mxnet_models import packed
from tests.support.other_litert import python_with_other_litert
from tests.support.s8s8 import s8s8_network
from tests.support.scores import score_of
from tests.support.serving import INT8, Served, model, serving

pytestmark = pytest.mark.slow


def push_and_choose(page: Page, served: Served, name: str, model: bytes) -> None:
    """Pushes a model, and selects it on the page."""
    build = served.client.put("/api/v1/models", params={"name": name}, content=model).json()
    assert served.ended(build["id"])["artifact"], build
    page.goto(f"{served.url}/#/models/{name}/1/accuracy")
    expect(page.locator("#model-title")).to_have_text(f"{name} 1")


def expect_verdict(page: Page, kind: str, word: str) -> None:
    expect(page.locator(f"#witnesses .verdict .state.{kind}")).to_have_text(word)


def test_a_differing_default_session_is_shown_beside_a_green_verdict(browser: Browser, served: Served) -> None:
    with visit(browser, served.url) as page:
        push_and_choose(page, served, "signed", s8s8_network())
        expect_verdict(page, "succeeded", "equal")
        expect(page.locator("#witnesses .verdict")).to_contain_text("session.qdqisint8allowed=1")
        default = page.locator("#witnesses li", has_text="a default session")
        expect(default).to_contain_text(re.compile(r"values from \d+ inputs differ"))


def test_a_stored_score_is_shown_with_its_interval(browser: Browser, served: Served) -> None:
    with visit(browser, served.url) as page:
        push_and_choose(page, served, "scored", model(INT8))
        expect_verdict(page, "succeeded", "equal")
        expect(page.locator("#witnesses li", has_text="top1")).to_have_count(0)
        artifact = served.client.get("/api/v1/models/scored/versions/1").json()["artifact"]
        statement = score_of(artifact, top1=0.8).to_bytes()
        envelope = Envelope("application/vnd.in-toto+json", statement, (Signature("key", b"not checked here"),))
        for document, signed in ((statement, "not signed"), (envelope.to_bytes(), "signed")):
            assert served.client.put(f"/api/v1/artifacts/{artifact}/score", content=document).status_code == 204
            page.reload()
            shown = page.locator("#witnesses li", has_text="top1")
            expect(shown).to_contain_text(f"0.7 to 0.9, on 50 inputs of photographs; {signed},")
            expect(shown.locator(".value")).to_have_text("0.8")


def test_a_build_that_differs_is_red_everywhere(browser: Browser, tmp_path: Path) -> None:
    python = python_with_other_litert(tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "executable", str(python))
        with serving(tmp_path) as served, visit(browser, served.url) as page:
            push_and_choose(page, served, "off", model(INT8))
            expect_verdict(page, "different", "different")
            expect(page.locator("#witnesses .verdict")).to_contain_text("the mode documents no such difference")
            expect(page.locator("#witnesses .state.succeeded")).to_have_count(0)
            page.get_by_role("link", name="Versions and rollout").click()
            expect(page.locator("#answers")).to_contain_text("none can be promoted")
            views = {"Models": "#matrix .different", "Builds": "#builds .different", "Pools": "#pools .failed"}
            for view, place in views.items():
                page.get_by_role("link", name=view).first.click()
                expect(page.locator(place)).to_have_text("different")
            accepted = served.push(name="off", accept_differences="true")
            assert served.ended(accepted["id"])["state"] == "succeeded"
            expect(page.locator("#pools .state.succeeded")).to_have_text("ready")
            page.goto(f"{served.url}/#/models/off/1/accuracy")
            expect_verdict(page, "running", "different, accepted")
            assert served.stop() == 0


def test_a_model_that_no_other_runtime_ran_is_not_green(browser: Browser, served: Served) -> None:
    with visit(browser, served.url) as page:
        push_and_choose(page, served, "mxnet", packed("sg_channels"))
        expect_verdict(page, "running", "own form only")
        expect(page.locator("#witnesses .verdict")).to_contain_text("checked against Octet's own canonical form only")
        expect(page.locator("#witnesses .state.succeeded")).to_have_count(0)


def test_a_report_of_an_older_octet_is_marked(browser: Browser, served: Served, folder: Path) -> None:
    old = {"mode": "litert-reference", "reference": "LiteRT 2.3.0", "verified": True, "checks": [], "formulas": {}}
    build = served.ended(served.push(name="older")["id"])
    OciLayout(folder / "data" / "store").attach(build["artifact"], Report.NUMERICS, json.dumps(old).encode())
    with visit(browser, served.url, "/models/older/1/accuracy") as page:
        expect_verdict(page, "queued", "unknown")
        expect(page.locator("#witnesses .verdict")).to_contain_text("older version of Octet")
