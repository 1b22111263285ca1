"""Writes the picture in `docs/how-to/page.md` from today's page: `python -m scripts.page_picture`.

Starts a server on a free port with a folder of its own, pushes the sample model, shows the page a digit, and takes the
picture in Chromium.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import ViewportSize, expect, sync_playwright

from scripts.demo import EXAMPLES, LABELS, MODEL, serving
from service.cli.client import Client
from service.cli.options import read_labels
from service.cli.output import Output, reporting
from service.cli.pushing import push_model

PICTURE = Path(__file__).resolve().parent.parent / "docs/how-to/page.png"
_SIZE: ViewportSize = {"width": 1200, "height": 760}
_COLOURS = 128  # enough for a page with few colours; the file is a third of the size
_DIGIT = "7"


def main() -> int:
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        print("Chromium is not installed: apt-get install chromium", file=sys.stderr)
        return 1
    with (
        tempfile.TemporaryDirectory(prefix="octet-page-") as folder,
        reporting(as_json=False) as output,
        serving(Path(folder)) as started,
        Client(started["url"]) as client,
    ):
        _push(client, output)
        _take(started["url"], program)
    return 0


def _push(client: Client, output: Output) -> None:
    push_model(client, MODEL, "digits", "host", None, output)
    client.describe("digits", 1, {"labels": list(read_labels(LABELS))})


def _take(url: str, program: str) -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport=_SIZE, color_scheme="light")
        page.goto(f"{url}/#/models/digits/1/try")
        page.set_input_files("#picture", EXAMPLES / "digits" / f"{_DIGIT}.png")
        expect(page.locator("#answer .classes li").first).to_contain_text(_DIGIT)
        page.screenshot(path=PICTURE)
        browser.close()
    with Image.open(PICTURE) as image:
        image.convert("RGB").quantize(_COLOURS).save(PICTURE, optimize=True)


if __name__ == "__main__":
    raise SystemExit(main())
