"""The services of deploy/compose.yaml run as local processes, with the environments of their images, in one folder."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from service.core.cluster.worker import WorkerKind
from tests.support.compiled import expected
from tests.support.deployment import services, stages
from tests.support.serving import INT8, Served, environment
from tests.support.waiting import WORK_TIMEOUT_S

Services = dict[str, subprocess.Popen[str]]


@contextmanager
def up(folder: Path) -> Iterator[Services]:
    """Starts every service, and yields them by name. Kills those that still run at the end."""
    with ExitStack() as stack:
        running = {}
        for name, service in services().items():
            image = stages()[service["build"]["target"]].environment
            here = {"OCTET_DATA_DIR": str(folder / "data"), "OCTET_HOST": "127.0.0.1", "OCTET_PORT": "0"}
            variables = {key: value for key, value in image.items() if key != "PATH"}
            program = [sys.executable, "-m", "service.cli", *service["command"]]
            process = subprocess.Popen(
                [*program, "--json"] if "ports" in service else program,
                env=environment() | variables | service.get("environment", {}) | here,
                stdout=subprocess.PIPE,
                text=True,
                cwd=folder,
            )
            running[name] = stack.enter_context(process)
            stack.callback(process.kill)
        yield running


def served(process: subprocess.Popen[str]) -> Served:
    assert process.stdout is not None
    return Served(process, json.loads(process.stdout.readline())["url"])


def test_the_services_push_compile_and_serve_a_model_together(tmp_path: Path) -> None:
    with up(tmp_path) as running:
        api, inference = served(running["api"]), served(running["inference-worker"])
        with api.client, inference.client:
            build = api.ended(api.push()["id"])
            assert build["state"] == "succeeded", build
            for server in (api, inference):
                assert server.label(7) == expected(INT8)[7].argmax() == 7
            workers = api.client.get("/api/v1/workers").json()["workers"]
            kinds = sorted((worker["kind"], worker["pid"]) for worker in workers)
            assert kinds == sorted(
                [
                    (WorkerKind.COMPILE, running["compile-worker"].pid),
                    (WorkerKind.INFERENCE, api.control_plane()),
                    (WorkerKind.INFERENCE, inference.control_plane()),
                ]
            )
            mapped = Path(f"/proc/{inference.data_plane()}/maps").read_text()
            assert "liboctet_runtime" in mapped
            assert "libtvm" not in mapped
        for process in running.values():
            process.send_signal(signal.SIGTERM)
        assert {name: process.wait(WORK_TIMEOUT_S) for name, process in running.items()} == dict.fromkeys(running, 0)
