"""The package of the JavaScript client, a web server of another origin, and an Octet server that lists this origin."""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from scripts import openapi
from tests.support.serving import Served, serving

ROOT = Path(__file__).resolve().parents[3]
ADMIN_KEY = "octet_cluster_" + 48 * "x"
_INSTALL_S = 300
_IMPORTS = {
    "octet-client": "./node_modules/octet-client/dist/index.js",
    "openapi-fetch": "./node_modules/openapi-fetch/dist/index.mjs",
}


@dataclass(frozen=True)
class Site:
    """A web site.

    Attributes:
        folder: the folder whose files it serves.
    """

    origin: str
    folder: Path


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the packed client is installed, as a user installs it."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("the JavaScript client is NOT tested: Node.js is not installed (apt-get install nodejs npm)")
    source, folder = tmp_path_factory.mktemp("client") / "client", tmp_path_factory.mktemp("project")
    ignored = shutil.ignore_patterns("node_modules", "dist", "build", "schema.ts")
    shutil.copytree(ROOT / "clients" / "javascript", source, ignore=ignored)
    openapi.write(source / "build" / "openapi.json")

    def run(folder: Path, *arguments: str, may_skip: bool = False) -> str:
        done = subprocess.run([npm, *arguments], cwd=folder, capture_output=True, text=True, timeout=_INSTALL_S)
        if done.returncode and may_skip:
            pytest.skip(f"the JavaScript client is NOT tested: npm cannot install its packages: {done.stderr[-500:]}")
        assert done.returncode == 0, f"{arguments}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    run(source, "ci", "--no-audit", "--no-fund", "--prefer-offline", may_skip=True)
    run(source, "pack")
    (packed,) = source.glob("*.tgz")
    (folder / "package.json").write_text(json.dumps({"type": "module", "private": True}))
    run(folder, "install", "--no-audit", "--no-fund", "--prefer-offline", str(packed))
    shutil.copy(source / "test" / "session.mjs", folder)
    page = f'<!doctype html><script type="importmap">{json.dumps({"imports": _IMPORTS})}</script>'
    (folder / "index.html").write_text(page)
    return folder


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A web site, whose origin is not that of the Octet server."""
    folder = tmp_path_factory.mktemp("site")
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, name="web site")
    thread.start()
    yield Site(f"http://127.0.0.1:{server.server_port}", folder)
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="session")
def served(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server with the sample model and labels, which needs a key."""
    folder = tmp_path_factory.mktemp("served")
    with serving(folder, admin_key=ADMIN_KEY, cors_origins=site.origin) as served:
        served.client.headers["Authorization"] = f"Bearer {ADMIN_KEY}"
        assert served.ended(served.push()["id"])["state"] == "succeeded"
        members = {"labels": [f"digit {index}" for index in range(10)], "task": "classify-images"}
        assert served.client.patch("/api/v1/models/digits/versions/1", json=members).is_success
        yield served


class _Quiet(SimpleHTTPRequestHandler):
    extensions_map = SimpleHTTPRequestHandler.extensions_map | {".mjs": "text/javascript"}

    def log_message(self, format: str, *args: object) -> None:
        """Logs nothing."""
