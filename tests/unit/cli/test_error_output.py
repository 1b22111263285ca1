"""Tests of how commands show errors, and of the report files that they write for internal errors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer

from service.cli.output import DIFFERENT, FAILURE, reporting
from service.core.errors import BuildFailed, Different, InternalError, OctetError, from_json


def ended(error: OctetError, as_json: bool = False) -> int:
    with pytest.raises(typer.Exit) as caught, reporting(as_json):
        raise error
    return caught.value.exit_code


def internal() -> InternalError:
    error = InternalError("the build process failed: TypeError: it is none", stage="select", op="conv")
    error.report = {"version": 1, "operators": [{"op": "qnn.conv2d"}]}
    return error


def test_an_internal_error_writes_its_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert ended(internal()) == FAILURE
    (file,) = tmp_path.iterdir()
    assert json.loads(file.read_text()) == internal().report
    shown = capsys.readouterr().err
    assert "internal_error" in shown
    assert "stage: select" in shown
    assert "operator: conv" in shown
    assert file.name in shown
    assert "safe to attach to an issue" in shown


def test_other_errors_write_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert ended(BuildFailed("the child did not answer")) == FAILURE
    assert not list(tmp_path.iterdir())


def test_a_report_that_cannot_be_written_causes_no_second_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    assert ended(internal()) == FAILURE
    assert "report:" not in capsys.readouterr().err


def test_a_difference_has_its_own_exit_status() -> None:
    assert ended(Different("it differs")) == DIFFERENT


def test_an_internal_error_keeps_its_report_as_json() -> None:
    read = from_json(internal().to_json())
    assert isinstance(read, InternalError)
    assert read.report == internal().report
