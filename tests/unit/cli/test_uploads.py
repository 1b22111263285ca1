"""Tests of uploading a model that consists of two files."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner

from service.cli.app import app
from service.compiler.importers.mxnet.package import unpack
from service.compiler.importers.uploads import upload_of
from service.core.models.model import model_name_of
from tests.support.mxnet_models import FOLDER

SYMBOL = FOLDER / "sg_residual-symbol.json"


def test_another_file_is_uploaded_unchanged(tmp_path: Path) -> None:
    with upload_of(tmp_path / "model.tflite") as upload:
        assert upload == tmp_path / "model.tflite"


def test_a_symbol_is_uploaded_with_its_parameters() -> None:
    with upload_of(SYMBOL) as upload:
        symbol, params = unpack(upload.read_bytes())
    assert symbol == SYMBOL.read_bytes()
    assert params == (FOLDER / "sg_residual-0000.params").read_bytes()
    assert not upload.exists()


def test_a_symbol_gives_its_model_the_name_without_the_suffix() -> None:
    assert model_name_of(Path("resnet50_v1-symbol.json")) == "resnet50_v1"


def test_a_symbol_can_be_inspected() -> None:
    result = CliRunner().invoke(app, ["inspect", str(SYMBOL), "--json", "--input-shape", "data=5,3,24,24"])
    assert result.exit_code == 0, result.output
    facts = json.loads(result.output)
    assert facts["format"] == "mxnet"
    assert facts["signature"]["inputs"][0]["shape"] == [5, 3, 24, 24]
