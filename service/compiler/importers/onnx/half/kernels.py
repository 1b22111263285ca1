"""The operators for which ONNX Runtime's CPU provider has a float16 kernel.

Source: `onnxruntime_pybind11_state.get_all_opkernel_def()` of ONNX Runtime 1.31.1 on x86-64.
"""

from __future__ import annotations

from service.compiler.importers.onnx.model import MAKES_ITEMS, READS_ITEMS
from service.compiler.importers.qdq import Operator

# Operators that only move or select elements, or whose result is one of a few exact values -> the first operator set
# in which they have a float16 kernel.
EXACT = {
    **dict.fromkeys(
        (
            *("Compress", "Concat", "ConstantOfShape", "Expand", "Flatten", "Gather", "GatherElements", "GatherND"),
            *("Identity", "If", "IsNaN", "Loop", "Mod", "Reshape", "ReverseSequence", "Round", "Scan", "Scatter"),
            *("ScatterElements", "ScatterND", "SequenceAt", "SequenceConstruct", "Shape", "Sign", "Slice", "Split"),
            *("SplitToSequence", "Squeeze", "TensorScatter", "Transpose", "Unsqueeze"),
            *("Optional", "OptionalGetElement", "OptionalHasElement"),
            *("com.microsoft.ExpandDims", "com.microsoft.GatherND", "com.microsoft.UnfoldTensor"),
        ),
        1,
    ),
    **dict.fromkeys(("Clip", "Max", "Min"), 12),
    "IsInf": 20,
    "QuantizeLinear": 19,
}
# Operators that compute in float32 and round their results.
_ROUNDED = {
    **dict.fromkeys(
        (
            *("Attention", "LayerNormalization", "RMSNormalization", "RotaryEmbedding", "Shrink"),
            *("SimplifiedLayerNormalization", "com.microsoft.GatherBlockQuantized"),
            *("com.microsoft.GroupQueryAttention", "com.microsoft.MatMulNBits", "com.microsoft.RotaryEmbedding"),
            *("com.microsoft.SkipLayerNormalization", "com.microsoft.SkipSimplifiedLayerNormalization"),
        ),
        1,
    ),
    "DequantizeLinear": 19,
}
# Operators on sequences and optional values, which are resolved at import.
MOVES_ITEMS = (READS_ITEMS | MAKES_ITEMS) - {"ConcatFromSequence", "Identity"}
_FIRST_SETS = {**EXACT, **_ROUNDED}
_DROPOUT_UNTIL = 11  # the last operator set in which Dropout has a float16 kernel


def has_kernel(operator: Operator, opset: int) -> bool:
    """Returns true if ONNX Runtime computes `operator` on float16."""
    if operator.op_type == "Dropout":
        return opset <= _DROPOUT_UNTIL
    return operator.op_type in _FIRST_SETS and opset >= _FIRST_SETS[operator.op_type]


def is_exact(operator: Operator) -> bool:
    """Returns true if the float32 operator on float16 values computes values that float16 can hold."""
    if operator.op_type in MOVES_ITEMS:
        return True
    return operator.op_type in EXACT and operator.attributes.get("reduction", "none") in ("none", "max", "min")
