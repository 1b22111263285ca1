"""The text of a module."""

from __future__ import annotations

from service.compiler.qnn.printer import text_of
from service.compiler.qnn.simulate import simulate
from tests.support.simulated_layers import layer


def test_the_text_of_the_simulated_form() -> None:
    """The text contains the module before and after the pass."""
    module = layer("dense")
    before, after = text_of(module), text_of(simulate(module, 14).module)
    assert before.splitlines()[3:] == [
        "main",
        "  %0: tensor<20x20xf32>  // x0",
        "  %1 = qnn.quantize(%0) {out_type = !0} : tensor<20x20xu8>  // lv",
        "  %2 = qnn.dense(%1, const<2x20xi8>, const<2xi32>) {in_type = !0, weight_type = !1, accum_dtype = int32}"
        " : tensor<20x2xi32>  // lv1",
        "  %3 = qnn.requantize(%2) {in_type = !2, out_type = !0} : tensor<20x2xu8>  // lv2",
        "  %4 = qnn.dequantize(%3) {in_type = !0} : tensor<20x2xf32>  // lv3",
        "  %5 = %4 : tensor<20x2xf32>  // gv",
        "  return %5",
    ]
    assert after.splitlines()[3:] == [
        "main",
        "  %0: tensor<20x20xf32>  // x0",
        "  %1 = qnn.simulated_quantize(%0) {out_type = !0} : tensor<20x20xf32>  // lv",
        "  %2 = qnn.dense(%1, const<2x20xf32>, const<2xf32>) {in_type = !0, weight_type = !1, accum_dtype = float32}"
        " : tensor<20x2xf32>  // lv1_sums",
        "  %3 = qnn.simulated_extent(%2) {bits = 14} : tensor<3xi64>  // lv1_extent",
        "  %4 = qnn.simulated_accumulate(%2) {bits = 14, dtype = int32} : tensor<20x2xi32>  // lv1",
        "  %5 = qnn.requantize(%4) {in_type = !2, out_type = !0} : tensor<20x2xu8>  // lv2_integers",
        "  %6 = astype(%5) {dtype = float32} : tensor<20x2xf32>  // lv2",
        "  %7 = qnn.simulated_dequantize(%6) {in_type = !0} : tensor<20x2xf32>  // lv3",
        "  %8 = %7 : tensor<20x2xf32>  // gv",
        "  %9 = %8 : tensor<20x2xf32>  // gv1",
        "  %10 = %3 : tensor<3xi64>  // gv2",
        "  return %9, %10",
    ]
