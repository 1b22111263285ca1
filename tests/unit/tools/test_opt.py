"""Passes from text to text."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tools import opt

EXAMPLES = Path(__file__).parents[3] / "examples"
PADDED = """\
!0 = !quant.uniform<i8:f32, 0.5:3>
main
  %0: tensor<1x4x4x4xi8> loc("input")
  %1 = permute_dims(%0) {axes = [0, 3, 1, 2]} : tensor<1x4x4x4xi8> loc("first")
  %2 = permute_dims(%1) {axes = [0, 2, 3, 1]} : tensor<1x4x4x4xi8> loc("back")
  %3 = qnn.relu(%2) {in_type = !0, out_type = !0} : tensor<1x4x4x4xi8> loc("relu")
  return %3
"""


def test_a_model_file_becomes_text_that_passes_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert opt.main([str(EXAMPLES / "digits_int8.tflite")]) == 0
    text = capsys.readouterr().out
    graph = tmp_path / "digits.qnn"
    graph.write_text(text)
    assert opt.main([str(graph)]) == 0
    assert capsys.readouterr().out == text
    assert opt.main([str(graph), "--short", "--pass", "decompose,make-tables"]) == 0
    assert re.search(r"%\d+ = qnn\.softmax", capsys.readouterr().out)


def test_a_pass_changes_the_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    graph = tmp_path / "turned.qnn"
    graph.write_text(PADDED)
    assert opt.main([str(graph), "--short", "--pass", "move-transposes"]) == 0
    after = capsys.readouterr().out
    assert "permute_dims" not in after
    assert "qnn.relu(%0)" in after


def test_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    graph = tmp_path / "wrong.qnn"
    graph.write_text(PADDED.replace("qnn.relu(", "qnn.rely("))
    assert opt.main([str(graph)]) == 1
    assert "line 6: the operator qnn.rely does not exist" in capsys.readouterr().err
    graph.write_text(PADDED)
    assert opt.main([str(graph), "--pass", "do-nothing"]) == 1
    assert "no pass has the name 'do-nothing'" in capsys.readouterr().err
