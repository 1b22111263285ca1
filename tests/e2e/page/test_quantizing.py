"""Tests the steps of a user who drops a float model and pictures on the page, reads the cost of quantization, chooses
mixed precision, and promotes the result.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Browser, Locator, Route, expect

from tests.support.browser import PHONE, visit
from tests.support.float_networks import SIZE, dense_network, residual_network
from tests.support.serving import Served
from tests.support.waiting import WORK_TIMEOUT_S

pytestmark = pytest.mark.slow

_PATIENCE_MS = 3000 * WORK_TIMEOUT_S  # the time for three successive builds


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A float model, six pictures and their labels."""
    folder = tmp_path_factory.mktemp("float")
    (folder / "net.onnx").write_bytes(residual_network())
    for number in range(6):
        pixels = np.random.default_rng(number).integers(0, 256, (SIZE, SIZE, 3), np.uint8)
        file = io.BytesIO()
        Image.fromarray(pixels).save(file, "PNG")
        (folder / f"{number}.png").write_bytes(file.getvalue())
    (folder / "labels.csv").write_text("".join(f"{number}.png,{number % 3}\n" for number in range(6)))
    return folder


CURVE: list[dict[str, Any]] = [
    {"kept": ["a", "b", "c"][:count], "share": share, "output_db": noise}
    for count, share, noise in ((0, 0.9, 21.5), (1, 0.95, 25.0), (3, 1.0, None))
]
CURVE += [
    {"kept": [], "wide": ["a"], "share": 0.93, "output_db": 24.0},
    {"kept": ["a"], "wide": ["b", "c"], "share": 0.99, "output_db": 33.0},
]
RIGHT = {"right": 9, "inputs": 10, "share": 0.9, "standard_error": 0.095}
REPORT = {
    "bytes": {"float": 4000, "quantized": 1000},
    "quantized": 3,
    "inputs": 10,
    "kept": [],
    "wide": ["before"],
    "outputs_db": {"y": 21.5},
    "tensors_db": {"a": 20.0},
    "accuracy": {"float": {**RIGHT, "right": 10, "share": 1.0, "standard_error": 0.0}, "quantized": RIGHT},
    "same_class": RIGHT,
    "sensitivity": {"layers_db": {"<b>a</b>": 22.0, "b": 30.0, "c": None}, "curve": CURVE},
}


_QUEUED: dict[str, Any] = {
    **{"models": [{"name": "form", "version": 1}], "target": "x86-64-v3", "options": {}, "state": "queued"},
    **{"stage": None, "progress": 0, "artifact": None, "error": None, "invalidated": False},
    **{"created_at": "2026-01-01T00:00:00Z", "started_at": None, "finished_at": None},
}

_SUCCEEDED: dict[str, Any] = {
    **{**_QUEUED, "state": "succeeded", "stage": "publish", "progress": 1},
    **{"id": "q1", "model": "net", "version": 1, "models": [{"name": "net", "version": 1}]},
}


@contextmanager
def showing(browser: Browser, served: Served, build: dict[str, Any], report: dict[str, Any]) -> Iterator[_Shown]:
    """Shows the cost of a build's quantization, with `report` as the server's response."""
    result = {"build": build, "version": 2, "file": "/api/v1/models/net/quantizations/q1/file", "report": report}
    requests: list[str] = []

    def quantized(route: Route) -> None:
        requests.append(route.request.url)
        route.fulfill(json={**build, "id": "q2", "state": "queued"})

    with visit(browser, served.url, may_fail=True) as page:  # the model does not exist
        page.route("**/quantizations/q1", lambda route: route.fulfill(json=result))
        page.route("**/quantizations?*", quantized)
        page.goto(f"{served.url}/#/quantize/net/q1")
        yield _Shown(page.locator("#quantization"), requests)


@dataclass(frozen=True)
class _Shown:
    """A page that shows what a quantization costs.

    Attributes:
        cost: the section of the page.
        asked: the URLs of the requests for other quantizations that the page has sent.
    """

    cost: Locator
    asked: list[str]

    def query(self) -> dict[str, list[str]]:
        """Returns the query of the only request."""
        (url,) = self.asked
        return parse_qs(urlsplit(url).query)


def test_the_cost_of_a_quantization_is_drawn(browser: Browser, served: Served) -> None:
    """The server's response is simulated."""
    asked_before = {"method": "mse", "activations": "uint8", "samples": 10, "data": "sha256:0", "adaround": True}
    options = {
        "quantize": {**asked_before, "keep": [], "wide": ["before"], "budget": 0.01, "latency_budget": "2x"},
        "input_shapes": {"": [1, 3, 16, 16]},
    }
    build = {**_SUCCEEDED, "options": options}
    with showing(browser, served, build, REPORT) as shown:
        cost = shown.cost
        expect(cost).to_contain_text("right: 100.0 % ± 0.0 in float, 90.0 % ± 9.5 quantized")
        expect(cost).to_contain_text("signal to noise at the output: 21.5 dB")
        chart = cost.get_by_role("img")
        expect(chart.locator("canvas")).to_have_count(1)
        expect(chart).to_have_attribute("aria-label", re.compile("5 mixtures: 0 in float 90.0 % ± 9.5; 1 in float"))
        expect(cost.locator(".legend")).to_contain_text("in floatof 16x8 (8-bit weights, 16-bit activations)mixed")
        points = cost.locator(".mixtures li")
        expect(points.first).to_contain_text("0 in float: 90.0 %, 21.5 dB chosen")
        expect(points.nth(2)).to_contain_text("3 in float: 100.0 %, no noise")
        expect(points.nth(3)).to_contain_text("1 of 16x8: 93.0 %, 24.0 dB")
        cost.get_by_text("The output with one layer").click()
        expect(cost.locator("details li").first).to_have_text("<b>a</b>: 22.0 dB")
        cost.get_by_role("button", name="Choose 1 in float, 2 of 16x8").click()
        expect(cost).to_contain_text("net 1: queued")
    assert shown.query() == {
        **{name: [str(value).replace("True", "true")] for name, value in asked_before.items()},
        "correct_bias": ["false"],  # the default for a build without this option
        "version": ["1"],
        "target": ["x86-64-v3"],
        "input_shape": ["=1,3,16,16"],
        "keep": ["a"],
        "wide": ["before", "b", "c"],
    }


def test_timed_mixtures_are_drawn_by_their_times(browser: Browser, served: Served) -> None:
    times = (1.0, 2.0, 5.0, 3.0, 4.0)
    curve = [{**point, "latency_ms": taken} for point, taken in zip(CURVE, times, strict=True)]
    bound = {"asked": "2x", "limit_ms": 2.0, "met": True, "budget_met": False}
    build = {**_SUCCEEDED, "options": {"quantize": {"method": "mse", "keep": [], "wide": []}}}
    report = {**REPORT, "sensitivity": {"layers_db": {}, "curve": curve, "latency_budget": bound}}
    with showing(browser, served, build, report) as shown:
        cost = shown.cost
        expect(cost).to_contain_text("a latency of 2x (2 ms). None of them meets the budget for accuracy.")
        expect(cost.locator(".mixtures li").nth(1)).to_contain_text("1 in float: 95.0 %, 25.0 dB, 2 ms")
        titles = ["0 in float", "1 in float", "1 of 16x8", "1 in float, 2 of 16x8", "3 in float"]
        order = ".*".join(re.escape(f"{title} ") for title in titles)  # by latency
        expect(cost.get_by_role("img")).to_have_attribute("aria-label", re.compile(order))


def test_a_mixture_with_bfloat16_can_be_chosen(browser: Browser, served: Served) -> None:
    curve = [*CURVE[:3], {"kept": ["a"], "wide": [], "bfloat16": ["b"], "share": 0.98, "output_db": 31.0}]
    build = {
        **_SUCCEEDED,
        "options": {"quantize": {"method": "mse", "keep": [], "budget": 0.1, "raise_to": "bfloat16"}},
    }
    report = {**REPORT, "sensitivity": {"layers_db": {}, "curve": curve}}
    with showing(browser, served, build, report) as shown:
        cost = shown.cost
        expect(cost.locator(".legend")).to_contain_text("in bfloat16")
        cost.get_by_role("button", name="Choose 1 in float, 1 in bfloat16").click()
        expect(cost).to_contain_text("net 1: queued")
    query = shown.query()
    assert (query["keep"], query["bfloat16"]) == (["a"], ["b"])
    assert query.keys().isdisjoint({"budget", "raise_to"})


def test_every_option_of_the_command_is_in_the_form(browser: Browser, served: Served, files: Path) -> None:
    requests: list[str] = []

    def quantized(route: Route) -> None:
        requests.append(route.request.url)
        route.fulfill(status=400, json={"title": "", "status": 400, "detail": "enough", "code": "invalid_input"})

    with visit(browser, served.url, "/quantize", may_fail=True) as page:
        page.route(
            "**/api/v1/models?name=*",
            lambda route: route.fulfill(json={"id": "b", "model": "form", "version": 1, **_QUEUED}),
        )
        page.route("**/quantizations?*", quantized)
        page.set_input_files("#float-file", files / "net.onnx")
        page.set_input_files("#inputs-files", files / "0.png")
        form = page.locator("#quantize")
        expect(form.get_by_label("Bits per weight")).to_have_count(0)
        form.get_by_text("More options").click()
        form.locator("[name=method]").select_option("mse")
        form.get_by_label("Measure the loss caused by each layer").uncheck()
        form.get_by_label("Share of answers").fill("0.5%")
        form.get_by_label("Latency limit").fill("1.2x")
        for words in ("Equalize channels", "Round weights"):
            form.get_by_label(words).check()
        form.get_by_label("Correct biases").uncheck()
        form.get_by_label("Choose ranges again").fill("2")
        form.get_by_label("Activations are stored as").select_option("int8")
        form.get_by_label("Most inputs to use").fill("7")
        form.get_by_label("Tensors with 16-bit activations").fill("a, b")
        form.get_by_label("Tensors to keep in float").fill("c")
        send = form.get_by_role("button", name="Quantize", exact=True)
        send.click()
        expect(page.locator("#quantize-status")).to_contain_text("enough")
        form.get_by_label("What to quantize").select_option("dynamic")
        expect(page.locator("#inputs-files-drop")).to_have_count(0)
        with page.expect_response("**/quantizations?*"):
            send.click()
        form.get_by_label("What to quantize").select_option("weights")
        form.get_by_label("Bits per weight").select_option("4")
        form.get_by_text("More options").first.click()
        form.get_by_label("Number of weights that share").select_option("64")
        with page.expect_response("**/quantizations?*"):
            send.click()
    static, dynamic, weights = ({**parse_qs(urlsplit(url).query)} for url in requests)
    assert static == {
        "version": ["1"],
        "method": ["mse"],
        "budget": ["0.5%"],
        "raise_to": ["16x8"],
        "latency_budget": ["1.2x"],
        "sensitivity": ["false"],
        "equalize": ["true"],
        "correct_bias": ["false"],
        "adaround": ["true"],
        "rounds": ["2"],
        "activations": ["int8"],
        "samples": ["7"],
        "wide": ["a", "b"],
        "keep": ["c"],
    }
    assert dynamic == {"version": ["1"], "dynamic": ["true"]}
    assert weights == {"version": ["1"], "weights": ["4"], "block": ["64"]}


def test_a_float_model_is_quantized_on_the_page(browser: Browser, served: Served, files: Path) -> None:
    with visit(browser, served.url, "/quantize") as page:
        page.set_default_timeout(_PATIENCE_MS)
        page.set_input_files("#float-file", files / "net.onnx")
        expect(page.locator("#quantize-name")).to_have_value("net")
        page.set_input_files("#inputs-files", [*sorted(files.glob("*.png")), files / "labels.csv"])
        expect(page.locator("#inputs-files-drop")).to_contain_text("7 files")
        page.get_by_role("button", name="Quantize", exact=True).click()
        cost = page.locator("#quantization")
        expect(cost).to_contain_text(re.compile("in float, .* quantized"), timeout=_PATIENCE_MS)
        expect(cost).to_contain_text("measured on 6 inputs")
        expect(cost.locator(".mixtures li")).to_have_count(9)
        expect(cost.locator(".mixtures li").first).to_contain_text("chosen")
        expect(cost.get_by_role("img")).to_have_attribute("aria-label", re.compile("^Accuracy of 9 mixtures"))
        expect(cost).to_contain_text("net 1 → 2")

        cost.get_by_role("button", name="Choose 1 of 16x8").click()
        expect(cost).to_contain_text("net 1 → 3", timeout=_PATIENCE_MS)
        expect(cost.locator(".mixtures li", has_text="chosen")).to_contain_text("1 of 16x8")
        expect(cost.get_by_role("button", name="Choose 0 in float")).to_be_visible()
        with page.expect_download() as downloaded:
            cost.get_by_role("button", name="Download").click()
        assert b"QuantizeLinear" in Path(downloaded.value.path()).read_bytes()

        cost.get_by_role("link", name="Show and promote version 3").click()
        expect(page.locator("#model-title")).to_have_text("net 3")
        expect(page.locator("#versions li").last).to_contain_text("quantize it with octet quantize")
        page.get_by_role("button", name="Promote version 3", exact=True).click(timeout=_PATIENCE_MS)
        expect(page.locator("#versions li").first).to_contain_text("stable")
    (alias,) = served.client.get("/api/v1/models/net/aliases").json()["aliases"]
    assert alias["version"] == 3


def test_an_error_in_the_pictures_is_shown(browser: Browser, served: Served, files: Path, tmp_path: Path) -> None:
    (tmp_path / "damaged.png").write_bytes((files / "0.png").read_bytes()[:60])
    with visit(browser, served.url, "/quantize", width=PHONE) as page:
        page.set_input_files("#float-file", files / "net.onnx")
        page.get_by_role("button", name="Quantize", exact=True).click()
        expect(page.locator("#quantize-status")).to_contain_text("Choose some pictures")
        page.set_input_files("#inputs-files", tmp_path / "damaged.png")
        page.get_by_role("button", name="Quantize", exact=True).click()
        expect(page.locator("#quantization")).to_contain_text("upload: damaged.png: ", timeout=_PATIENCE_MS)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_the_cost_is_shown_again_later(browser: Browser, served: Served) -> None:
    with visit(browser, served.url, "/builds") as page:
        page.locator("#builds li", has_text="succeeded").get_by_role("link", name="Show the result").last.click()
        expect(page.locator("#quantization")).to_contain_text("net 1 → 2")
        expect(page.locator("#quantization .mixtures li")).to_have_count(9)


def test_only_products_are_quantized_without_inputs(browser: Browser, served: Served, tmp_path: Path) -> None:
    (tmp_path / "dense.onnx").write_bytes(dense_network())
    with visit(browser, served.url, "/quantize") as page:
        page.set_default_timeout(_PATIENCE_MS)
        page.set_input_files("#float-file", tmp_path / "dense.onnx")
        page.locator("#quantize").get_by_label("What to quantize").select_option("weights")
        page.get_by_role("button", name="Quantize", exact=True).click()
        cost = page.locator("#quantization")
        expect(cost).to_contain_text("3 matrix products with weights of 8 bits", timeout=_PATIENCE_MS)
        cost.get_by_role("link", name="Show and promote version 2").click()
        page.get_by_role("button", name="Promote version 2", exact=True).click(timeout=_PATIENCE_MS)
        expect(page.locator("#versions li").first).to_contain_text("stable")
