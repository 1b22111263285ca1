"""Tests that `python -m tools.kernel` builds each operator that it offers, and that the operator agrees with the
oracle.
"""

from __future__ import annotations

import pytest

from service.core.builds.numerics import QNNPACK, XNNPACK
from tools.kernel.__main__ import main
from tools.kernel.operators import OPERATORS, Parameters, macs_of

_IMAGE = ["--input", "1,6,5,16", "--channels", "8", "--window", "3", "--target", "x86-64-v3"]


@pytest.mark.parametrize(
    "operator",
    ["conv2d", "depthwise", "add", "sub", "mul", "avg_pool2d", "max_pool2d", "requantize", "softmax", "concatenate"],
)
def test_operators_of_images(operator: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([operator, *_IMAGE]) == 0
    assert "values equal the oracle's\n" in capsys.readouterr().out


def test_a_dense_layer_with_its_speed(capsys: pytest.CaptureFixture[str]) -> None:
    layer = ["dense", "--input", "1,64", "--channels", "32", "--target", "x86-64-v3"]
    assert main([*layer, "--perf", "--seconds", "0.01"]) == 0
    assert "of the peak measured in the same run" in capsys.readouterr().out


def test_the_program_and_the_machine_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["conv2d", *_IMAGE, "--mode", XNNPACK, "--ir", "--asm"]) == 0
    printed = capsys.readouterr().out
    assert "PrimFunc" in printed or "prim_func" in printed
    assert "vpmaddwd" in printed


def test_a_target_that_cannot_run_here_is_only_built(capsys: pytest.CaptureFixture[str]) -> None:
    pool = ["max_pool2d", "--input", "1,8,8,32", "--window", "2", "--strides", "2"]
    assert main([*pool, "--target", "cuda-sm_80"]) == 0
    assert "not run" in capsys.readouterr().out


def test_an_operator_that_the_mode_does_not_define_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["conv2d", *_IMAGE, "--mode", QNNPACK]) == 2
    assert capsys.readouterr().err.startswith("conv2d 1x6x5x16: ")


def test_multiply_accumulates_count_padding() -> None:
    parameters = Parameters((1, 5, 5, 4), 8, (3, 3), (2, 2), True, "int8", 2)
    assert parameters.margins == (1, 1, 1, 1)
    assert macs_of("conv2d", parameters) == 3 * 3 * 3 * 3 * 4 * 8
    assert macs_of("depthwise", parameters) == 3 * 3 * 3 * 3 * 4
    assert macs_of("add", parameters) == 0


def test_every_operator_has_a_name_of_the_dialect() -> None:
    assert {"conv2d", "dense", "logistic"} <= set(OPERATORS)


def test_a_target_that_does_not_exist_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["add", "--input", "1,8", "--target", "x86-64-v9"]) == 2
    assert "unknown target 'x86-64-v9'" in capsys.readouterr().err
