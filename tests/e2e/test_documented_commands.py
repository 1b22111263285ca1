"""Runs every command of the README and of the documentation as printed, except commands for which a reason is stated.

The commands of a page run in order in one folder, which is also the home directory, with a server for this page. A
comment in the page says what must exist before (`tests/support/documented.py`).
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import typer.main

from service.cli.command_line import command_line
from tests.support.build_caches import share_caches
from tests.support.documented import ROOT, Command, commands_of, inline_commands, pages, provide
from tests.support.serving import environment
from tests.support.waiting import WORK_TIMEOUT_S, eventually

# The programs that cannot run in a test, with the reason.
NOT_RUN = {
    "source": "the commands run in the environment of the tests",
    "docker": "needs a container engine; test_deploy.py checks the files, test_compose.py runs their commands",
    "pip": "downloads packages",
    "perf_analyzer": "tests/conformance/test_perf_analyzer.py runs it where it is installed",
}
# Pages that run in `make test`: they compile one or two small models.
FAST = ("README.md", "docs/for/data-analyst.md", "docs/for/platform.md")
NAMES = [str(page.relative_to(ROOT)) for page in pages()]


def documented(name: str) -> list[Command]:
    return list(commands_of((ROOT / name).read_text(), name))


def runnable(name: str) -> list[Command]:
    return [command for command in documented(name) if not command.reason and command.program not in NOT_RUN]


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in FAST else pytest.mark.slow) for name in NAMES if runnable(name)]
)
def test_the_commands_of_a_page_succeed(name: str, tmp_path: Path) -> None:
    provide(tmp_path)
    with Reader(tmp_path) as reader:
        for command in runnable(name):
            reader.does(command)


def test_each_program_that_is_not_run_is_used_in_the_documentation() -> None:
    assert NOT_RUN.keys() <= {command.program for name in NAMES for command in documented(name)}


@pytest.mark.parametrize("name", NAMES)
def test_commands_in_text_exist(name: str) -> None:
    root = typer.main.get_command(command_line())
    for text in inline_commands((ROOT / name).read_text()):
        assert not unknown_words(root, text), f"{name}: `{text}`"


class Reader:
    """A user who types a page's commands, in a new folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port, self.words = folder, two_free_ports(), dict[str, str]()
        inherited = {k: v for k, v in environment(port=self.port).items() if not k.startswith(("XDG_", "OTEL_"))}
        path = f"{Path(sys.executable).parent}{os.pathsep}{inherited['PATH']}"
        self.environment = inherited | {"PATH": path, "HOME": str(folder)}
        self._server = ExitStack()
        share_caches(folder / ".local" / "share" / "octet")

    def __enter__(self) -> Reader:
        self._server.enter_context(self._serving("octet serve"))
        return self

    def __exit__(self, *error: object) -> None:
        self._server.close()

    def does(self, command: Command) -> None:
        text = command.text.replace("localhost:8080", f"localhost:{self.port}")
        text = text.replace("localhost:8081", f"localhost:{self.port + 1}")
        for word, value in self.words.items():
            text = text.replace(word, value)
        if re.search(r"\boctet serve\b", text):
            self._server.close()  # a page may start several servers; only the last one runs
            self._server.enter_context(self._serving(text))
            return
        printed = self._run(command, text)
        if command.stands_for:
            self.words[command.stands_for] = printed.strip()

    def _run(self, command: Command, text: str) -> str:
        # An error response makes its command fail.
        text = re.sub(r"\bcurl\b(?! -f)", "curl --silent --show-error --fail-with-body", text)
        # CI runs the targets of the Makefile. Here they must only exist.
        text = re.sub(r"^make\b", f"make --dry-run --directory {shlex.quote(str(ROOT))}", text)
        done = subprocess.run(
            ["bash", "-c", f"set -euo pipefail\n{text}"],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=WORK_TIMEOUT_S,
        )
        assert done.returncode == 0, f"{command}\nas {text}\n{done.stdout}{done.stderr}"
        return done.stdout

    @contextmanager
    def _serving(self, text: str) -> Iterator[None]:
        """Runs `octet serve` as printed, until it is ready; ends it afterwards."""
        text = re.sub(r"\boctet serve\b", "exec octet serve --json", text)
        log = self.folder / "server.log"
        with (
            log.open("a") as errors,
            subprocess.Popen(
                ["bash", "-c", text],
                cwd=self.folder,
                env=self.environment,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            ) as server,
        ):
            try:
                assert server.stdout is not None
                started = server.stdout.readline()
                assert '"url"' in started, f"{text}\n{started}{log.read_text()}"
                ready = json.loads(started)["url"] + "/v2/health/ready"
                eventually(lambda: answers(ready))
                yield
                server.send_signal(signal.SIGTERM)
                assert server.wait(WORK_TIMEOUT_S) == 0, f"{text}\n{log.read_text()}"
            finally:
                server.kill()


def answers(url: str) -> bool:
    """Returns true if a server responds at `url`. The certificate of a page's server is not signed by a known
    authority.
    """
    try:
        return httpx.get(url, verify=False, trust_env=False).is_success
    except httpx.TransportError:
        return False


def two_free_ports() -> int:
    """Returns the lower one of two adjacent free ports, for HTTP and gRPC."""
    while True:
        with socket.socket() as http, socket.socket() as grpc:
            http.bind(("127.0.0.1", 0))
            port: int = http.getsockname()[1]
            try:
                grpc.bind(("127.0.0.1", port + 1))
            except (OSError, OverflowError):
                continue
            return port


def unknown_words(command: Any, text: str) -> list[str]:
    """Returns the commands and options in `text` that `octet` does not have."""
    words = text.split()[1:]
    while words and hasattr(command, "commands"):
        if (name := words.pop(0)) not in command.commands:
            return [name]
        command = command.commands[name]
    known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    return [word for word in words if word.startswith("-") and word not in known]
