"""Tests of how the page shows the results of each task. The server's responses are simulated, except that the model and
its description are real: the sample model takes the place of models of all tasks.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, Route, expect

from tests.support.browser import PHONE, visit
from tests.support.compiled import EXAMPLES
from tests.support.serving import Served
from tests.support.sounds import wav

pytestmark = pytest.mark.slow

_TEXT = {"tokenizer": "sha256:0"}


@contextmanager
def trying(
    browser: Browser, served: Served, answer: dict[str, Any], parameters: dict[str, Any] | None = None, **options: Any
) -> Iterator[tuple[Page, list[str]]]:
    """Opens the model, with `parameters` in its description, and `answer` as the response to predictions. Yields the
    page and the bodies of the predictions.
    """
    bodies: list[str] = []

    def describe(route: Route) -> None:
        described = {**route.fetch().json(), "parameters": parameters or {}}
        route.fulfill(json=described)

    def predict(route: Route) -> None:
        bodies.append((route.request.post_data_buffer or b"").decode(errors="replace"))
        route.fulfill(json=answer)

    with visit(browser, served.url, **options) as page:
        page.route("**/v2/models/digits/versions/1", describe)
        page.route(re.compile("/digits/predict|/v1/rerank"), predict)
        page.goto(f"{served.url}/#/models/digits/1/try")
        yield page, bodies


def show_picture(page: Page) -> None:
    page.set_input_files("#picture", EXAMPLES / "digits" / "7.png")


@pytest.mark.parametrize("width", [PHONE, 1280])
def test_boxes_are_drawn_over_the_picture(browser: Browser, digits: Served, width: int) -> None:
    box = {"label": "<b>cat</b>", "score": 0.91, "left": 0.25, "top": 0.5, "right": 0.75, "bottom": 1.0}
    with trying(browser, digits, {"boxes": [box]}, {"task": "detect"}, width=width) as (page, _):
        show_picture(page)
        drawn = page.locator("#answer .box")
        expect(drawn).to_have_text("<b>cat</b> 91.0 %")
        picture, place = page.locator("#answer img").bounding_box(), drawn.bounding_box()
        assert picture is not None
        assert place is not None
        assert place["x"] - picture["x"] == pytest.approx(picture["width"] / 4, abs=1)
        assert place["y"] - picture["y"] == pytest.approx(picture["height"] / 2, abs=1)
        assert place["width"] == pytest.approx(picture["width"] / 2, abs=1)
        expect(page.locator("#answer")).to_contain_text("1 object")
        assert page.evaluate("document.documentElement.scrollWidth") == width


def test_a_mask_is_drawn_over_the_picture(browser: Browser, digits: Served) -> None:
    values = [[[[0.0, 1.0] if column < 4 else [1.0, 0.0] for column in range(8)] for _ in range(8)]]
    answer = {"outputs": [{"name": "mask", "shape": [1, 8, 8, 2], "values": values}]}
    with trying(browser, digits, answer) as (page, _):
        show_picture(page)
        expect(page.locator("#answer canvas")).to_have_attribute("width", "8")
        row = page.locator("#answer canvas").evaluate("c => [...c.getContext('2d').getImageData(0, 4, 8, 1).data]")
        left, right = row[4 * 1 + 3], row[4 * 6 + 3]  # how opaque two pixels are
        assert left > 0
        assert right == 0  # class 0 is the background


def test_a_sound_is_sent_as_wav(browser: Browser, digits: Served) -> None:
    answer = {"classes": [{"label": "speech", "score": 0.8}]}
    with trying(browser, digits, answer, {"sampling_rate": 16_000}) as (page, bodies):
        page.set_input_files("#sound", {"name": "a.wav", "mimeType": "audio/wav", "buffer": wav(np.array([0.0, 0.5]))})
        expect(page.locator("#answer .classes .name")).to_have_text("speech")
        expect(page.locator("#code pre")).to_contain_text("audio/wav' --data-binary @a.wav")
    assert bodies[0].startswith("RIFF")


def test_lines_are_compared_by_their_embeddings(browser: Browser, digits: Served) -> None:
    answer = {"results": [{"embedding": [1.0, 0.0]}, {"embedding": [0.6, 0.8], "truncated": True}]}
    with trying(browser, digits, answer, {"task": "embed", "text": _TEXT}) as (page, bodies):
        page.get_by_label("Texts, one per line").fill("<i>one</i>\n\ntwo")
        page.get_by_role("button", name="Compare").click()
        rows = page.locator("#similarity tbody tr")
        expect(rows.locator("td")).to_have_text(["1.00", "0.60", "0.60", "1.00"])
        expect(rows.first.locator("th")).to_have_text("1 <i>one</i>")
        expect(page.locator("#answer .warning")).to_contain_text("1 text longer than the model's maximum was cut off")
    assert json.loads(bodies[0]) == {"text": ["<i>one</i>", "two"]}


def test_spans_are_marked_in_the_text(browser: Browser, digits: Served) -> None:
    span = {"label": "PER", "score": 0.99, "start": 2, "end": 5}  # the emoji is one character
    parameters = {"task": "classify-tokens", "text": _TEXT}
    with trying(browser, digits, {"spans": [span]}, parameters) as (page, _):
        page.get_by_label("Text", exact=True).fill("\N{GRINNING FACE} Ada wrote")
        page.get_by_role("button", name="Predict").click()
        expect(page.locator("#spans mark")).to_have_text("AdaPER")


def test_documents_are_ranked(browser: Browser, digits: Served) -> None:
    answer = {"results": [{"index": 1, "relevance_score": 0.9}, {"index": 0, "relevance_score": 0.1}]}
    with trying(browser, digits, answer, {"task": "rerank", "text": _TEXT}) as (page, bodies):
        page.get_by_label("Query").fill("which?")
        page.get_by_label("Documents, one per line").fill("first\nsecond")
        page.get_by_role("button", name="Rank").click()
        expect(page.locator("#ranking .name")).to_have_text(["second", "first"])
        expect(page.locator("#code pre")).to_contain_text("/v1/rerank")
    assert json.loads(bodies[0]) == {"model": "digits", "query": "which?", "documents": ["first", "second"]}


def test_a_folder_is_pushed_as_one_archive(browser: Browser, digits: Served, tmp_path: Any) -> None:
    (tmp_path / "net" / "onnx").mkdir(parents=True)
    for name in ("config.json", "onnx/model.onnx", ".hidden"):
        (tmp_path / "net" / name).write_bytes(name.encode())
    with visit(browser, digits.url, "/models?push=1", may_fail=True) as page:
        page.set_input_files("#model-folder", tmp_path / "net")
        expect(page.locator("#model-file-drop")).to_contain_text("net.zip")
        expect(page.get_by_role("dialog").get_by_label("Name")).to_have_value("net")
        page.route("**/api/v1/models?*", lambda route: route.fulfill(status=400, json={"detail": "enough"}))
        with page.expect_request("**/api/v1/models?*") as sent:
            page.get_by_role("button", name="Push and compile").click()
        body = sent.value.post_data_buffer or b""
        expect(page.locator("#pushed")).to_contain_text("enough")
    assert b"onnx/model.onnx" in body
    assert b".hidden" not in body
