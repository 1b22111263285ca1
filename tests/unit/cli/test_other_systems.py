"""The commands on systems other than Linux."""

from __future__ import annotations

import subprocess
import sys

import pytest

_SETUP = "from tests.support.other_system import pretend; pretend()\n"
_MAIN = "import sys; from service.cli import main; sys.argv[1:] = {arguments!r}; main()"


def run(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", _SETUP + program], capture_output=True, text=True)


def test_only_the_commands_of_the_client_are_listed() -> None:
    done = run(_MAIN.format(arguments=["--help"]))
    assert done.returncode == 0, done.stderr
    assert "\n  predict " in done.stdout
    assert "\n  compile " not in done.stdout


def test_the_client_needs_no_module_that_only_unix_has() -> None:
    """Imports every listed command."""
    program = "from service.cli.command_line import _COMMANDS, _is_available, load_command\n"
    done = run(program + "print([load_command(name) and name for name in filter(_is_available, _COMMANDS)])")
    assert done.returncode == 0, done.stderr
    assert "'push'" in done.stdout


def test_the_python_client_needs_no_module_that_only_unix_has() -> None:
    done = run("import octet; octet.Client().close(); octet.AsyncClient; octet.errors.OctetError")
    assert done.returncode == 0, done.stderr


def test_a_command_of_the_client_reaches_the_network() -> None:
    done = run(_MAIN.format(arguments=["models", "--server", "http://127.0.0.1:9", "--json"]))
    assert "server_unreachable" in done.stdout + done.stderr


@pytest.mark.parametrize("command", ["serve", "compile", "pull"])
def test_a_command_that_needs_linux_is_refused(command: str) -> None:
    done = run(_MAIN.format(arguments=[command, "x"]))
    assert done.returncode == 1
    assert f"octet {command} needs Linux" in done.stderr
