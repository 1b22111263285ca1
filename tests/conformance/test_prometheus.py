"""An unmodified Prometheus scrapes real servers and evaluates the dashboard's queries and the alerts."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.waiting import eventually
from tests.unit.test_dashboard import ALERTS, FILES, builds, predictions, targets

_KEPT = Path.home() / ".cache" / "octet-perf" / "prom" / "usr" / "bin" / "prometheus"
PROGRAM = os.environ.get("OCTET_PROMETHEUS") or shutil.which("prometheus") or str(_KEPT)
_SCRAPES = 5
_GRAFANA = {"$model": ".*", "$__rate_interval": "30s"}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        shutil.which(PROGRAM) is None,
        reason=f"NOT TESTED, since there is no Prometheus at {PROGRAM}: apt-get install prometheus",
    ),
]


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """Prometheus, after it has scraped two servers a few times. One of them has answered predictions, and the other has
    built models.
    """
    folder = tmp_path_factory.mktemp("prometheus")
    pages = asyncio.run(predictions()), builds(folder)
    with ExitStack() as stack:
        addresses = [stack.enter_context(scraped(page)) for page in pages]
        yield stack.enter_context(running(folder, addresses))


@contextmanager
def scraped(page: str) -> Iterator[str]:
    """A server for `/metrics`. Its counters grow with each scrape, as if the same events had happened again."""
    counted = re.findall(r"^# TYPE (\S+) (?:counter|histogram)$", page, re.MULTILINE)
    scrapes = iter(range(1, 1_000_000))

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            times = next(scrapes)
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.end_headers()
            self.wfile.write("".join(scaled_line(line, counted, times) + "\n" for line in page.splitlines()).encode())

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def scaled_line(line: str, counted: list[str], times: int) -> str:
    name = re.split(r"[{ ]", line, maxsplit=1)[0]
    if line.startswith("#") or (re.sub("_(bucket|sum|count)$", "", name) not in counted and name not in counted):
        return line
    sample, value = line.rsplit(" ", 1)
    return f"{sample} {float(value) * times}"


@contextmanager
def running(folder: Path, addresses: list[str]) -> Iterator[httpx.Client]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        listen = f"127.0.0.1:{free.getsockname()[1]}"
    config = {
        "global": {"scrape_interval": "500ms", "evaluation_interval": "1s"},
        "rule_files": [str(FILES / "octet.rules.yaml")],
        "scrape_configs": [{"job_name": "octet", "static_configs": [{"targets": addresses}]}],
    }
    (folder / "prometheus.yml").write_text(json.dumps(config))  # JSON is valid YAML
    command = [PROGRAM, f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/tsdb"]
    with (
        subprocess.Popen([*command, f"--web.listen-address={listen}"], stderr=subprocess.DEVNULL) as process,
        httpx.Client(base_url=f"http://{listen}/api/v1", trust_env=False) as client,
    ):
        try:
            eventually(lambda: is_up(client))
            time.sleep(0.5 * _SCRAPES)
            yield client
        finally:
            process.terminate()


def is_up(client: httpx.Client) -> bool:
    try:
        return len(client.get("/query", params={"query": "up == 1"}).json()["data"]["result"]) == 2
    except (httpx.HTTPError, ValueError, KeyError):
        return False


def results(client: httpx.Client, query: str) -> list[dict[str, Any]]:
    for variable, value in _GRAFANA.items():
        query = query.replace(variable, value)
    answer = client.get("/query", params={"query": query}).json()
    assert answer["status"] == "success", answer
    found: list[dict[str, Any]] = answer["data"]["result"]
    return found


@pytest.mark.parametrize("target", [*targets()])
def test_a_panel_has_data(target: dict[str, str], prometheus: httpx.Client) -> None:
    found = results(prometheus, target["expr"])
    assert found
    assert all(each["value"][1] not in ("NaN", "+Inf", "-Inf") for each in found), found
    for label in re.findall(r"\{\{\s*(\w+)\s*\}\}", target["legendFormat"]):
        assert all(label in each["metric"] for each in found), (label, found)


def test_the_alerts_are_loaded_and_evaluated(prometheus: httpx.Client) -> None:
    def rules() -> list[dict[str, Any]]:
        groups = prometheus.get("/rules").json()["data"]["groups"]
        return [rule for group in groups for rule in group["rules"]]

    assert {rule["name"] for rule in rules()} == {rule["alert"] for rule in ALERTS}
    eventually(lambda: all(rule["health"] == "ok" for rule in rules()))
