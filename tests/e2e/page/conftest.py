from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.support.browser import chromium
from tests.support.serving import Served, serving


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("page")


@pytest.fixture(scope="module")
def served(browser: Browser, folder: Path) -> Iterator[Served]:
    """A server without models."""
    with serving(folder) as served:
        yield served
        assert served.stop() == 0


@pytest.fixture(scope="module")
def digits(served: Served) -> Served:
    """The server, with a model that is built."""
    assert served.ended(served.push()["id"])["state"] == "succeeded"
    return served
