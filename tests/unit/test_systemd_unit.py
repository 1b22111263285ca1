"""Checks that deploy/octet.service restarts a server that ended, and does not forbid what the sandbox needs."""

from __future__ import annotations

import configparser
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer

from service.cli.app import app
from service.core.settings import Settings, load_settings
from tests.support.deployment import ROOT

UNIT = ROOT / "deploy" / "octet.service"


@pytest.fixture(scope="module")
def unit() -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(UNIT)
    return parser


def test_the_command_of_the_unit_exists(unit: configparser.ConfigParser) -> None:
    program, name, *arguments = shlex.split(unit["Service"]["ExecStart"])
    command: Any = typer.main.get_command(app)
    assert Path(program).name == "octet"
    command.commands[name].make_context(name, arguments)  # raises if an argument is not known


def test_the_variables_of_the_unit_are_settings(unit: configparser.ConfigParser) -> None:
    names = {pair.split("=")[0] for pair in unit["Service"]["Environment"].split()}
    assert {name.removeprefix("OCTET_").lower() for name in names} <= Settings.model_fields.keys()


def test_the_unit_always_restarts_unless_a_setting_is_invalid(unit: configparser.ConfigParser) -> None:
    assert unit["Service"]["Restart"] == "always"
    assert unit["Unit"]["StartLimitIntervalSec"] == "0"
    wrong = subprocess.run([sys.executable, "-m", "service.cli", "serve", "--port", "many"], stderr=subprocess.PIPE)
    assert str(wrong.returncode) == unit["Service"]["RestartPreventExitStatus"]


def test_remaining_processes_are_killed_and_a_stopped_server_may_drain(unit: configparser.ConfigParser) -> None:
    assert unit["Service"]["KillMode"] == "mixed"
    assert int(unit["Service"]["TimeoutStopSec"]) > load_settings().grace_s + 10  # the supervisor waits so long


def test_systemds_watchdog_waits_longer_than_octets_own(unit: configparser.ConfigParser) -> None:
    assert unit["Service"]["Type"] == "notify"
    assert int(unit["Service"]["WatchdogSec"]) > load_settings().watchdog_s


def test_the_data_folder_is_the_units_state_directory(unit: configparser.ConfigParser) -> None:
    variables = dict(pair.split("=") for pair in unit["Service"]["Environment"].split())
    assert variables["OCTET_DATA_DIR"] == f"/var/lib/{unit['Service']['StateDirectory']}"


def test_the_unit_does_not_forbid_what_the_sandbox_needs(unit: configparser.ConfigParser) -> None:
    """These options would forbid landlock(7), unshare(2), and making memory executable, which compiled code needs."""
    assert not {"SystemCallFilter", "RestrictNamespaces", "MemoryDenyWriteExecute"} & unit["Service"].keys()


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd")
def test_systemd_understands_every_line(tmp_path: Path) -> None:
    copy = tmp_path / UNIT.name
    copy.write_text(UNIT.read_text().replace("/opt/octet/bin/octet", "/bin/true"))
    process = subprocess.run(["systemd-analyze", "verify", copy], capture_output=True, text=True)
    complaints = [line for line in process.stderr.splitlines() if UNIT.name in line]
    assert complaints == []
