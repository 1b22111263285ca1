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


def test_its_command_is_one(unit: configparser.ConfigParser) -> None:
    program, name, *arguments = shlex.split(unit["Service"]["ExecStart"])
    command: Any = typer.main.get_command(app)
    assert Path(program).name == "octet"
    command.commands[name].make_context(name, arguments)  # raises if an argument is not known


def test_its_variables_are_settings(unit: configparser.ConfigParser) -> None:
    names = {pair.split("=")[0] for pair in unit["Service"]["Environment"].split()}
    assert {name.removeprefix("OCTET_").lower() for name in names} <= Settings.model_fields.keys()


def test_it_is_started_again_without_end_unless_a_setting_is_wrong(unit: configparser.ConfigParser) -> None:
    assert unit["Service"]["Restart"] == "always"
    assert unit["Unit"]["StartLimitIntervalSec"] == "0"
    wrong = subprocess.run([sys.executable, "-m", "service.cli", "serve", "--port", "many"], stderr=subprocess.PIPE)
    assert str(wrong.returncode) == unit["Service"]["RestartPreventExitStatus"]


def test_what_a_killed_one_leaves_is_killed_and_who_is_told_to_stop_may_drain(unit: configparser.ConfigParser) -> None:
    assert unit["Service"]["KillMode"] == "mixed"
    assert int(unit["Service"]["TimeoutStopSec"]) > load_settings().grace_s + 10  # the supervisor waits so long


def test_systemd_watches_it_as_long_as_it_may_be_without_a_sign_of_life(unit: configparser.ConfigParser) -> None:
    assert unit["Service"]["Type"] == "notify"
    assert int(unit["Service"]["WatchdogSec"]) > load_settings().watchdog_s


def test_it_writes_where_its_data_lies(unit: configparser.ConfigParser) -> None:
    variables = dict(pair.split("=") for pair in unit["Service"]["Environment"].split())
    assert variables["OCTET_DATA_DIR"] == f"/var/lib/{unit['Service']['StateDirectory']}"


def test_the_sandbox_is_left_what_it_needs(unit: configparser.ConfigParser) -> None:
    """These options would forbid landlock(7), unshare(2), and making memory executable, which compiled code needs."""
    assert not {"SystemCallFilter", "RestrictNamespaces", "MemoryDenyWriteExecute"} & unit["Service"].keys()


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd")
def test_systemd_understands_every_line(tmp_path: Path) -> None:
    copy = tmp_path / UNIT.name
    copy.write_text(UNIT.read_text().replace("/opt/octet/bin/octet", "/bin/true"))
    process = subprocess.run(["systemd-analyze", "verify", copy], capture_output=True, text=True)
    complaints = [line for line in process.stderr.splitlines() if UNIT.name in line]
    assert complaints == []
