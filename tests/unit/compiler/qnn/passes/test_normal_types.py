"""Types in blocks become per-tensor and per-axis types if they can; other types stay."""

from __future__ import annotations

import pytest

from service.compiler.qnn.parser import InvalidText, parse_module
from service.compiler.qnn.type_parser import parse
from tests.support.qnn_text import check_pass


def test_blocks_become_scales_of_the_tensor_and_of_an_axis() -> None:
    check_pass(
        "normalize-types",
        """\
!0 = !quant.uniform<u8:f32:{}, {{0.5:3}}>
!1 = !quant.uniform<i8:f32:{0:1}, {{0.25},{0.125}}>
!2 = !quant.uniform<i32:f32:1, {0.125,0.0625}>
!3 = !quant.uniform<i8:f32:{1:2}, {{1.0:-5}}>
main
  %0: tensor<1x4xu8> loc("x")
  %1 = qnn.dense(%0, const<2x4xi8> [1, 2, 3, 4, -1, -2, -3, -4]) \
{in_type = !0, weight_type = !1, accum_dtype = "int32"} : tensor<1x2xi32> loc("sums")
  %2 = qnn.requantize(%1) {in_type = !2, out_type = !3} : tensor<1x2xi8> loc("y")
  %3 = qnn.dequantize(%2) {in_type = !3} : tensor<1x2xf32> loc("real")
  return %3
""",
        """\
!0 = !quant.uniform<u8:f32, 0.5:3>
!1 = !quant.uniform<i8:f32:0, {0.25,0.125}>
!2 = !quant.uniform<i32:f32:1, {0.125,0.0625}>
!3 = !quant.uniform<i8:f32, 1.0:-5>
main
  %0: tensor<1x4xu8> loc("x")
  %1 = qnn.dense(%0, const<2x4xi8> [1, 2, 3, 4, -1, -2, -3, -4]) \
{in_type = !0, weight_type = !1, accum_dtype = "int32"} : tensor<1x2xi32> loc("sums")
  %2 = qnn.requantize(%1) {in_type = !2, out_type = !3} : tensor<1x2xi8> loc("y")
  %3 = qnn.dequantize(%2) {in_type = !3} : tensor<1x2xf32> loc("real")
  %4 = %3 : tensor<1x2xf32> loc("gv")
  return %4
""",
    )


def test_types_of_parts_are_normalized() -> None:
    joined = """\
!0 = !quant.uniform<i8:f32{blocks}>
!1 = !quant.uniform<i8:f32, 1.0>
main
  %0: tensor<1x4xi8> loc("x")
  %1 = qnn.concatenate((%0, %0)) {{in_types = [!0, !1], out_type = !1, axis = 1}} : tensor<1x8xi8> loc("y")
{rest}"""
    check_pass(
        "normalize-types",
        joined.format(blocks=":{0:1,1:4}, {{0.5:3}}", rest="  return %1\n"),
        joined.format(blocks=", 0.5:3", rest='  %2 = %1 : tensor<1x8xi8> loc("gv")\n  return %2\n'),
    )


def test_other_types_stay() -> None:
    """Blocks of several rows and columns, scales of an axis with one index, and plain operators."""
    check_pass(
        "normalize-types",
        """\
!0 = !quant.uniform<i8:f32:{0:2,1:1}, {{0.5,1.0},{0.25,2.0}}>
!1 = !quant.uniform<i8:f32:2, {0.5:1}>
main
  %0: tensor<4x2x1xi8> loc("x")
  %1 = reshape(%0, shape<4x2>) : tensor<4x2xi8> loc("matrix")
  %2 = qnn.dequantize(%1) {in_type = !0} : tensor<4x2xf32> loc("blocks")
  %3 = qnn.dequantize(%0) {in_type = !1} : tensor<4x2x1xf32> loc("axis")
  return %2, %3,
""",
    )


@pytest.mark.parametrize(
    ("given", "normal"),
    [
        ("i8:f32:{}, {{{2.0:10}}}", "i8:f32, 2.0:10"),
        ("i8:f32:{0:4,1:2}, {{2.0}}", "i8:f32, 2.0"),
        ("i8:f32:{1:1}, {{2.0,3.0:1}}", "i8:f32:1, {2.0,3.0:1}"),
        ("i8:f32:{0:4,1:1}, {{2.0,3.0:1}}", "i8:f32:1, {2.0,3.0:1}"),
        ("i4<-7:7>:bf16:{2:1}, {{{2.0,3.0}}}", "i4<-7:7>:bf16:2, {2.0,3.0}"),
        ("i8:f32:{1:2,0:8}, {{2.0,3.0}}", "i8:f32:{1:2}, {{2.0,3.0}}"),
        ("i8:f32:{1:2,0:1}, {{2.0,3.0},{4.0,5.0}}", "i8:f32:{0:1,1:2}, {{2.0,3.0},{4.0,5.0}}"),
        ("i8:f32:{0:1,1:1}, {{2.0,3.0},{4.0,5.0}}", "i8:f32:{0:1,1:1}, {{2.0,3.0},{4.0,5.0}}"),
        ("i8:f32:0, {2.0}", "i8:f32:0, {2.0}"),
    ],
)
def test_the_simplest_form_of_a_type(given: str, normal: str) -> None:
    assert str(parse(f"!quant.uniform<{given}>").normalized()) == f"!quant.uniform<{normal}>"


def test_block_sizes_that_do_not_fit_are_refused_although_the_simplest_form_fits() -> None:
    text = """\
!0 = !quant.uniform<i8:f32:{1:2}, {{0.5}}>
main
  %0: tensor<1x4xi8> loc("x")
  %1 = qnn.dequantize(%0) {in_type = !0} : tensor<1x4xf32> loc("y")
  return %1
"""
    with pytest.raises(InvalidText, match=r"line 4: .*1 blocks of 2 do not fit 4 elements of dimension 1"):
        parse_module(text)
