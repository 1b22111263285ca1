"""Tests that `octet explain --passes` writes the text of the model after each pass."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner

from service.cli.app import app
from service.compiler.importers.auto import import_model
from service.compiler.lowering import pass_order
from service.compiler.qnn.printer import complete_text_of

SAMPLE = Path(__file__).resolve().parents[5] / "examples" / "digits_int8.tflite"


def explain(*arguments: str, status: int = 0) -> str:
    result = CliRunner().invoke(app, ["explain", str(SAMPLE), "--target", "x86-64-v3", *arguments])
    assert result.exit_code == status, result.output
    return result.output


def test_there_is_a_numbered_file_for_each_pass(tmp_path: Path) -> None:
    document = json.loads(explain("--passes", str(tmp_path / "ir"), "--json"))
    order = ["import", *pass_order.ORDER]
    first = order.index("select")
    names = [f"{index:02}-{name}.{'qnn' if index < first else 'txt'}" for index, name in enumerate(order)]
    assert document == {"pipeline": pass_order.text(), "directory": str(tmp_path / "ir"), "files": names}
    assert sorted(path.name for path in (tmp_path / "ir").iterdir()) == names
    (selected,) = (tmp_path / "ir").glob("*-select.txt")
    assert "octet_conv_" in selected.read_text()


def test_the_files_before_kernels_are_selected_are_models(tmp_path: Path) -> None:
    explain("--passes", str(tmp_path / "ir"))
    files = sorted((tmp_path / "ir").glob("*.qnn"))
    names = [file.stem[3:] for file in files]
    assert (names[0], names[-1]) == ("import", "split-extremes")
    for file in files:
        assert complete_text_of(import_model(file.read_bytes()).module) == file.read_text()


def test_existing_files_are_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    assert "is not empty" in explain("--passes", str(tmp_path), status=1)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
