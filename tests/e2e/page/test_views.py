"""Tests of the page of a server with models, artifacts and requests."""

from __future__ import annotations

import base64
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image
from playwright.sync_api import Browser, Page, expect
from prometheus_client import CollectorRegistry, Histogram, generate_latest

from tests.support.browser import visit
from tests.support.compiled import EXAMPLES
from tests.support.serving import UINT8, Served

pytestmark = pytest.mark.slow


@pytest.fixture
def page(browser: Browser, digits: Served) -> Iterator[Page]:
    with visit(browser, digits.url) as page:
        expect(page.locator("#model-title")).to_be_visible()
        yield page


def test_quantiles_are_computed_like_in_prometheus(page: Page) -> None:
    registry = CollectorRegistry()
    histogram = Histogram("took", "", ("model",), buckets=(1, 2, 4), registry=registry)
    for model, value in (('a"\n\\', 0.5), ('a"\n\\', 1.5), ("b", 1.6), ("b", 3.0)):
        histogram.labels(model).observe(value)
    program = """async (text) => {
      const { histogram, parse, quantile, since } = await import("/page/metrics.js");
      const samples = parse(text);
      const all = histogram(samples, "took"), one = histogram(samples, "took", { model: "a\\"\\n\\\\" });
      return [[0.25, 0.5, 0.75, 1].map((share) => quantile(all, share)), quantile(one, 1),
              quantile(since(all, one), 1), quantile(since(one, all), 0.5), quantile(since(all, all), 0.5)];
    }"""
    everything, one, others, restarted, nothing = page.evaluate(program, generate_latest(registry).decode())
    # One observation is at most 1, three observations are at most 2, and all four are at most 4.
    assert everything == [1, 1.5, 2, 4]
    assert (one, others) == (2, 4)
    assert restarted == 1  # the count is less than before, so the server has restarted, and all observations are new
    assert nothing is None


def test_unchanged_elements_are_kept_when_others_change(page: Page) -> None:
    """A button that is replaced while it is pressed gets no click. The page updates the ages that it shows at each
    poll.
    """
    program = """async () => {
      const { h, show } = await import("/page/dom.js");
      const place = document.createElement("div");
      const clicked = [];
      const draw = (ago, name) => show(place, h("ul", {}, h("li", {}, h("p", {}, ago),
        h("button", { onclick: () => clicked.push(name) }, name))));
      draw("1 s ago", "a");
      const [first, item] = [place.querySelector("button"), place.querySelector("li")];
      draw("2 s ago", "a");
      const kept = place.querySelector("button") === first && place.querySelector("li") === item;
      draw("2 s ago", "b");
      place.querySelector("button").click();
      return [kept, place.innerText, clicked];
    }"""
    assert page.evaluate(program) == [True, "2 s agob", ["b"]]


def test_layers_have_times(page: Page) -> None:
    expect(page.locator("#layers")).to_contain_text("% of peak")
    expect(page.locator("#layers .value").filter(has_text=re.compile("[µm]s"))).not_to_have_count(0)


def test_time_is_divided_by_type_of_code(page: Page) -> None:
    kinds = page.locator("#layers .kinds")
    expect(kinds).to_contain_text("integer kernels")
    shares = [float(text.removesuffix(" %")) for text in kinds.locator(".value").all_text_contents()]
    assert sum(shares) == pytest.approx(100, abs=0.1 * len(shares))


def test_layers_for_another_machine_have_multiplication_counts(page: Page, digits: Served) -> None:
    build = digits.push(UINT8, name="afar", target="aarch64")
    assert digits.ended(build["id"])["state"] == "succeeded"
    page.locator("#choose-afar-1").click()
    expect(page.locator("#layers")).to_contain_text("could not measure it")


def test_an_artifact_in_quarantine_is_shown_and_released(page: Page, digits: Served, folder: Path) -> None:
    (build,) = digits.client.get("/api/v1/builds?model=digits&limit=1").json()["builds"]
    record = {"crashes": ["2026-11-21T12:00:00+00:00"] * 3, "how": "signal 11", "is_quarantined": True}
    (folder / "data" / "crashes.json").write_text(json.dumps({build["artifact"]: record}))
    expect(page.locator("#quarantine")).to_contain_text("digits version 1")
    expect(page.locator("#quarantine")).to_contain_text("crashed 3 times")
    page.get_by_role("button", name="Let it run again").click()
    expect(page.locator("#quarantine")).to_be_empty()
    assert json.loads((folder / "data" / "crashes.json").read_text()) == {}


@pytest.mark.parametrize("format", ["PNG", "WEBP"])
def test_a_picture_is_dropped(page: Page, format: str) -> None:
    data = io.BytesIO()
    with Image.open(EXAMPLES / "digits" / "5.png") as image:
        image.save(data, format, lossless=True)
    drop = """([text, type]) => {
      const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
      const dataTransfer = new DataTransfer();
      dataTransfer.items.add(new File([bytes], "picture", { type }));
      const place = document.getElementById("try-drop");
      for (const kind of ["dragenter", "dragover", "drop"]) {
        place.dispatchEvent(new DragEvent(kind, { dataTransfer, bubbles: true, cancelable: true }));
      }
    }"""
    page.evaluate(drop, [base64.b64encode(data.getvalue()).decode(), f"image/{format.lower()}"])
    expect(page.locator("#answer .classes .name").first).to_have_text("class 5")


def test_a_file_that_is_not_a_picture_is_rejected(browser: Browser, digits: Served) -> None:
    with visit(browser, digits.url, may_fail=True) as page:
        expect(page.locator("#model-title")).to_be_visible()
        page.set_input_files("#picture", {"name": "notes.txt", "mimeType": "text/plain", "buffer": b"no picture"})
        expect(page.locator("#answer .error")).to_contain_text("notes.txt is not a picture")
        page.set_input_files("#picture", {"name": "cut.png", "mimeType": "image/png", "buffer": b"\x89PNG"})
        expect(page.locator("#answer .error")).not_to_contain_text("notes.txt")


def test_versions_and_their_aliases_are_shown(page: Page, digits: Served) -> None:
    assert digits.ended(digits.push(UINT8)["id"])["state"] == "succeeded"
    for promotion in ({"version": 1}, {"version": 2, "percent": 10}):
        assert digits.client.post("/api/v1/models/digits/promote", json=promotion).status_code == 200
    rows = page.locator("#matrix tbody tr").filter(has_text="digits")
    expect(rows).to_have_count(2)
    expect(rows.nth(0)).to_contain_text("stable 10 %")
    expect(rows.nth(1)).to_contain_text("stable 90 %")
    page.get_by_role("button", name="version 2", exact=True).click()
    expect(page.locator("#model-title")).to_have_text("digits 2")
    expect(page.locator("#versions")).to_contain_text("UINT8 [1, 16, 16, 1]")


def test_the_figures_change_while_requests_arrive(page: Page, digits: Served) -> None:
    answered = page.locator("#now .tile").first
    before = answered.inner_text()
    for _ in range(20):
        digits.label(3)
    expect(answered).not_to_have_text(before)
    expect(page.locator("#now svg polyline")).to_have_count(1)
