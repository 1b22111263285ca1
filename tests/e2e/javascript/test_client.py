"""The JavaScript client in Node.js, and in a page of another origin in Chromium."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.javascript.conftest import ADMIN_KEY, Site
from tests.support.browser import chromium
from tests.support.compiled import EXAMPLES
from tests.support.serving import Served
from tests.support.waiting import WORK_TIMEOUT_S

pytestmark = pytest.mark.slow

PICTURE = (EXAMPLES / "digits" / "7.png").read_bytes()
EXPECTED = {
    "asFile": "digit 7",
    "asBytes": "digit 7",
    "asJson": "digit 7",
    "inJob": ["digit 7", "digit 7"],
    "scores": {"type": "FP32", "shape": [1, 10], "isFloat": True},
    "version": "1",
    "build": "succeeded",
    "absent": "404 not_found",
    "withoutKey": "401 unauthorized",
    "deletedJob": "404 not_found",
    "pushed": "415 unsupported_format",
}


def check(found: dict[str, Any]) -> None:
    assert {"stage", "state"} <= set(found.pop("events"))
    assert found == EXPECTED


def test_the_client_works_in_node(project: Path, served: Served) -> None:
    script = f"""
        import {{ session }} from "./session.mjs";
        const picture = new Uint8Array({list(PICTURE)});
        console.log(JSON.stringify(await session({served.url!r}, {ADMIN_KEY!r}, picture)));
    """
    (project / "run.mjs").write_text(script)
    done = subprocess.run(
        ["node", "run.mjs"], cwd=project, capture_output=True, text=True, timeout=WORK_TIMEOUT_S, check=False
    )
    assert done.returncode == 0, done.stderr
    check(json.loads(done.stdout))


def test_the_client_works_in_a_page_of_another_origin(project: Path, site: Site, served: Served) -> None:
    shutil.copytree(project, site.folder / "client")
    script = """async ([url, key, picture]) => {
        const { session } = await import("./session.mjs");
        return await session(url, key, new Uint8Array(picture));
    }"""
    with chromium() as browser:
        page = browser.new_page()
        page.goto(f"{site.origin}/client/index.html")
        check(page.evaluate(script, [served.url, ADMIN_KEY, list(PICTURE)]))


def test_a_page_of_an_origin_that_is_not_listed_reads_nothing(project: Path, site: Site, served: Served) -> None:
    with chromium() as browser:
        page = browser.new_page()
        page.goto(f"{site.origin.replace('127.0.0.1', 'localhost')}/")
        script = "async (url) => { try { await fetch(url); return 'read'; } catch (error) { return error.name; } }"
        assert page.evaluate(script, f"{served.url}/v2/health/live") == "TypeError"
