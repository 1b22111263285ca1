"""Tests of how the page shows the results of real models that find objects and classify pixels."""

from __future__ import annotations

from pathlib import Path

import httpx
import numpy as np
import pytest
from playwright.sync_api import Browser, expect

from tests.support.browser import visit
from tests.support.compiled import EXAMPLES
from tests.support.onnx_builder import OnnxBuilder
from tests.support.serving import Served

pytestmark = pytest.mark.slow

LABELS = "background,cat,dog"


def detector() -> bytes:
    """Returns a model that finds a dog in the lower right quarter of every picture."""
    model = OnnxBuilder()
    x = model.input("image", "float32", (1, 3, 16, 16))
    mean = model.node("ReduceMean", [x], axes=[1, 2, 3], keepdims=1)
    small = model.node(
        "Mul", [model.node("Reshape", [mean, model.constant([1, 1, 1], "int64")]), model.constant(1e-3, "float32")]
    )
    model.node("Add", [model.constant([[[0.5, 0.5, 1.0, 1.0], [0.0, 0.0, 0.2, 0.2]]], "float32"), small], ["boxes"])
    model.node("Add", [model.constant([[[0.05, 0.05, 0.9], [0.9, 0.05, 0.05]]], "float32"), small], ["scores"])
    model.output("boxes", "float32", (1, 2, 4))
    model.output("scores", "float32", (1, 2, 3))
    return model.build()


def segmenter() -> bytes:
    """Returns a model whose class of a pixel is 2 (dog) if the pixel is bright, or else 0."""
    model = OnnxBuilder()
    x = model.input("image", "float32", (1, 3, 16, 16))
    weights = np.zeros((3, 3, 1, 1))
    weights[2] = 1
    bias = model.constant([0.5, -1.0, 0.0], "float32")
    model.node("Conv", [x, model.constant(weights, "float32"), bias], ["classes"])
    model.output("classes", "float32", (1, 3, 16, 16))
    return model.build()


def pushed(served: Served, name: str, content: bytes, **query: str) -> None:
    query = {"name": name, "labels": LABELS, "mean": "0", "std": "1", **query}
    build = httpx.put(f"{served.url}/api/v1/models", params=query, content=content).json()
    assert served.ended(build["id"])["state"] == "succeeded"


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    """A picture whose right half is white."""
    from PIL import Image

    file = tmp_path / "halves.png"
    pixels = np.zeros((16, 16, 3), np.uint8)
    pixels[:, 8:] = 255
    Image.fromarray(pixels).save(file)
    return file


def test_a_box_has_the_name_of_its_class(browser: Browser, served: Served) -> None:
    pushed(served, "detector", detector(), task="detect")
    with visit(browser, served.url, "/models/detector/1/try") as page:
        page.set_input_files("#picture", EXAMPLES / "digits" / "7.png")
        expect(page.locator("#answer .box")).to_have_text("dog 90.0 %")
        expect(page.locator("#answer")).to_contain_text("1 object")


def test_the_colours_of_a_mask_have_the_names_of_their_classes(browser: Browser, served: Served, picture: Path) -> None:
    pushed(served, "segmenter", segmenter())
    with visit(browser, served.url, "/models/segmenter/1/try") as page:
        page.set_input_files("#picture", picture)
        expect(page.locator("#answer canvas")).to_have_attribute("width", "16")
        expect(page.locator("#answer .mask-legend span")).to_have_text(["dog 50.0 %"])
