"""Tests of the output of `octet targets` for this machine and for others."""

from __future__ import annotations

import json
from importlib import util
from typing import Any

import pytest
from typer.testing import CliRunner

from service.cli.app import app
from service.cli.commands.local import targets
from service.compiler import sandbox
from service.compiler.sandbox import Finding
from service.core.target import TARGETS, Host, detect_host, parse_target


@pytest.fixture(autouse=True)
def complete(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes both parts of the sandbox available, even if the kernel of this machine lacks them."""
    monkeypatch.setattr(sandbox, "check", lambda: [Finding("landlock", True, ""), Finding("seccomp", True, "")])


def _run_targets(*options: str) -> Any:
    result = CliRunner().invoke(app, ["targets", *options])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout) if "--json" in options else result.stdout


def _by_name(host: Host) -> dict[str, Any]:
    return {each.target.name: each.to_json() for each in targets.abilities(host)}


def test_all_targets_are_listed_with_their_requirements() -> None:
    report = _run_targets("--json")
    assert report["host"] == (detect_host().best and detect_host().target.name)
    needs = {each["target"]: (each["architecture"], frozenset(each["features"])) for each in report["targets"]}
    assert needs == {target.name: (target.architecture, target.features) for target in TARGETS}


def test_this_machine_compiles_for_all_targets_and_runs_those_whose_features_it_has() -> None:
    for each in _run_targets("--json")["targets"]:
        assert each["compile"] == {"possible": True, "missing": []}
        lacks = sorted(parse_target(each["target"]).missing_on(detect_host()))
        assert each["run"] == each["verify"] == {"possible": not lacks, "missing": lacks}


def test_a_board_is_shown_with_its_missing_features() -> None:
    report = _by_name(Host("aarch64", frozenset({"asimd", "asimddp"})))
    assert report["aarch64+dotprod"]["run"]["possible"]
    assert report["aarch64+i8mm"]["run"] == {"possible": False, "missing": ["i8mm"]}
    assert report["x86-64-v3"]["run"]["missing"] == ["x86_64"]


def test_the_runtime_package_compiles_for_no_target(monkeypatch: pytest.MonkeyPatch) -> None:
    found = util.find_spec
    monkeypatch.setattr(targets, "find_spec", lambda name: None if name in ("tvm", "ziglang") else found(name))
    for each in _run_targets("--json")["targets"]:
        assert each["compile"] == {"possible": False, "missing": ["apache-tvm", "ziglang"]}
    assert "pip install 'octet-serve[server]'" in _run_targets()


def test_missing_sandbox_features_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "check", lambda: [Finding("landlock", False, ""), Finding("seccomp", True, "")])
    report = _by_name(detect_host())
    assert all("landlock" in each[what]["missing"] for each in report.values() for what in ("compile", "run", "verify"))
    assert "these commands need --unsandboxed" in _run_targets()


def test_the_best_for_this_machine_has_a_star() -> None:
    if detect_host().best is None:
        pytest.skip("NOT TESTED: no target runs here")
    [line] = [line for line in _run_targets().splitlines() if line.startswith("*") and "host" not in line]
    assert line.split()[1] == detect_host().target.name
