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
from playwright.sync_api import Browser, Page, Route, expect

from tests.support.browser import visit
from tests.support.compiled import EXAMPLES
from tests.support.serving import UINT8, Served

pytestmark = pytest.mark.slow


@pytest.fixture
def page(browser: Browser, digits: Served) -> Iterator[Page]:
    with visit(browser, digits.url) as page:
        expect(page.locator("#choose-digits-1")).to_be_visible()
        yield page


@pytest.fixture
def layers(browser: Browser, digits: Served) -> Iterator[Page]:
    with visit(browser, digits.url, "/models/digits/1/layers") as page:
        yield page


def test_quantiles_are_computed_like_in_prometheus(page: Page) -> None:
    program = """async () => {
      const { quantile, since } = await import("/page/app/histogram.js");
      const [bounds, all, one] = [[1, 2, 4], [1, 2, 1, 0], [1, 1, 0, 0]];
      return [[0.25, 0.5, 0.75, 1].map((share) => quantile(all, share, bounds)), quantile(one, 1, bounds),
              quantile(since(all, one), 1, bounds), since(one, all), quantile(since(all, all), 0.5, bounds),
              quantile([0, 0, 0, 3], 0.5, bounds)];
    }"""
    everything, one, others, restarted, nothing, beyond = page.evaluate(program)
    # One observation is at most 1, three observations are at most 2, and all four are at most 4.
    assert everything == [1, 1.5, 2, 4]
    assert (one, others) == (2, 4)
    assert restarted == [
        1,
        1,
        0,
        0,
    ]  # the server restarted, so all observations are new
    assert nothing is None
    assert beyond == 4  # the highest bound


def test_numbers_and_nouns_agree(page: Page) -> None:
    program = """async () => {
      const { plural } = await import("/page/app/format.js");
      return [plural(0, "build"), plural(1, "build"), plural(2, "build"), plural(1200, "class", "classes")];
    }"""
    assert page.evaluate(program) == ["0 builds", "1 build", "2 builds", "1.2 k classes"]


def test_names_tell_layers_apart(page: Page) -> None:
    program = """async (layers) => {
      const { namesOf } = await import("/page/layers/names.js");
      return namesOf(layers.map((layer) => ({ layer })));
    }"""
    layers = [
        "CONV_2D_0_net/block_1/relu/Relu6;net/block_1/bn",
        "CONV_2D_1_net/block_2/relu/Relu6",
        "net/block_2/add",
        "",
    ]
    assert page.evaluate(program, layers) == ["block_1/relu", "block_2/relu", "block_2", "generated code"]


def test_layers_have_times(layers: Page) -> None:
    expect(layers.locator("#layers")).to_contain_text("% of the time · ")
    expect(layers.locator("#layers")).to_contain_text("% of peak")
    expect(layers.locator("#layers .value").filter(has_text=re.compile("[µm]s"))).not_to_have_count(0)


def test_a_model_of_one_layer_has_a_graph_without_edges(browser: Browser, digits: Served) -> None:
    def shorten(route: Route) -> None:
        explanation = route.fetch().json()
        route.fulfill(json={**explanation, "layers": explanation["layers"][:1], "edges": []})

    with visit(browser, digits.url) as page:
        page.route("**/layers", shorten)
        page.goto(f"{digits.url}/#/models/digits/1/layers")
        expect(page.locator("#graph-card svg")).to_be_visible()
        expect(page.locator("#graph-card")).not_to_contain_text("older version")


def test_time_is_divided_by_type_of_code(layers: Page) -> None:
    kinds = layers.locator(".kinds")
    expect(kinds).to_contain_text("integer kernels")
    shares = [float(text.removesuffix(" %")) for text in kinds.locator(".value").all_text_contents()]
    assert sum(shares) == pytest.approx(100, abs=0.1 * len(shares))


def test_the_graph_and_the_table_choose_the_same_layer(layers: Page) -> None:
    nodes = layers.locator("#graph .node")
    expect(nodes).to_have_count(layers.locator("#layers li").count())
    nodes.nth(1).click()
    expect(layers.locator("#layers li.chosen")).to_have_attribute("data-layer", "1")
    layers.locator("#layers li button").nth(2).click()
    expect(layers.locator("#graph .node.chosen text").first).to_contain_text("3. ")
    assert layers.url.endswith("?layer=2")


def test_layers_for_another_machine_have_multiplication_counts(page: Page, digits: Served) -> None:
    build = digits.push(UINT8, name="afar", target="aarch64")
    assert digits.ended(build["id"])["state"] == "succeeded"
    page.locator("#choose-afar-1").click()
    page.get_by_role("link", name="Layers").click()
    expect(page.locator("#layers-summary")).to_contain_text("could not measure it")


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
    page.locator("#choose-digits-1").click()
    expect(page.locator("#picture-drop")).to_be_visible()
    data = io.BytesIO()
    with Image.open(EXAMPLES / "digits" / "5.png") as image:
        image.save(data, format, lossless=True)
    drop = """([text, type]) => {
      const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
      const dataTransfer = new DataTransfer();
      dataTransfer.items.add(new File([bytes], "picture", { type }));
      const place = document.getElementById("picture-drop");
      for (const kind of ["dragenter", "dragover", "drop"]) {
        place.dispatchEvent(new DragEvent(kind, { dataTransfer, bubbles: true, cancelable: true }));
      }
    }"""
    page.evaluate(drop, [base64.b64encode(data.getvalue()).decode(), f"image/{format.lower()}"])
    expect(page.locator("#answer .classes .name").first).to_have_text("class 5")


def test_a_file_that_is_not_a_picture_is_rejected(browser: Browser, digits: Served) -> None:
    with visit(browser, digits.url, "/models/digits/1", may_fail=True) as page:
        page.set_input_files("#picture", {"name": "notes.txt", "mimeType": "text/plain", "buffer": b"no picture"})
        expect(page.locator("#try .error")).to_contain_text("notes.txt is not a picture")
        page.set_input_files("#picture", {"name": "cut.png", "mimeType": "image/png", "buffer": b"\x89PNG"})
        expect(page.locator("#answer .error")).to_be_visible()
        expect(page.locator("#try .error")).to_have_count(0)


def test_numbers_are_sent_as_json(browser: Browser, digits: Served) -> None:
    with visit(browser, digits.url, "/models/digits/1/try?input=json") as page:
        page.get_by_role("button", name="Predict").click()
        expect(page.locator("#answer .classes li")).to_have_count(5)
        expect(page.locator("#code pre")).to_contain_text("curl -H 'Content-Type: application/json'")
        page.get_by_role("button", name="Python").click()
        expect(page.locator("#code pre")).to_contain_text("httpx.post(")


def test_versions_and_their_aliases_are_shown(page: Page, digits: Served) -> None:
    assert digits.ended(digits.push(UINT8)["id"])["state"] == "succeeded"
    for promotion in ({"version": 1}, {"version": 2, "percent": 10}):
        assert digits.client.post("/api/v1/models/digits/promote", json=promotion).status_code == 200
    rows = page.locator("#matrix tbody tr").filter(has_text="digits")
    expect(rows).to_have_count(2)
    expect(rows.nth(0)).to_contain_text("stable 10 %")
    expect(rows.nth(1)).to_contain_text("stable 90 %")
    page.locator("#choose-digits-2").click()
    page.get_by_role("link", name="Versions and rollout").click()
    expect(page.locator("#versions")).to_contain_text("UINT8 [1, 16, 16, 1]")


def test_the_figures_change_while_requests_arrive(page: Page, digits: Served) -> None:
    answered = page.locator("#now .tile").first
    before = answered.inner_text()
    for _ in range(20):
        digits.label(3)
    expect(answered).not_to_have_text(before)
    expect(answered.locator("canvas")).to_have_count(1)
    expect(answered.get_by_role("img")).to_have_attribute("aria-label", re.compile("over the last 5 minutes; now"))
