"""A fused layer: five operators become one convolution of integers, whose kernel also computes Softsign.

octet compile --dialect fused_softsign.py model.onnx -o compiled --accept-differences

The model computes dequantize, convolution, Softsign and quantize with float32 values. The replacement sums integers,
which is faster and exact. float32 sums are rounded, so a few results differ by one step: `changes_values` says so, and
`octet compile` compares the results with those of ONNX Runtime.
"""

from octet import qnn
from octet.qnn import patterns as p

fused = qnn.Dialect("fused")


@fused.real(onnx="Softsign")
def softsign(x):
    """x / (1 + |x|)"""
    return x / (1 + abs(x))


x, weight, bias = p.wildcard(), p.is_const(), p.is_const()
real_x, real_weight = p.is_op("relax.qnn.dequantize")(x), p.is_op("relax.qnn.dequantize")(weight)
layer = p.is_op("relax.qnn.real_conv2d")(real_x, real_weight, bias)
stored = p.is_op("relax.qnn.quantize")(softsign.pattern(layer))


@fused.pattern(stored, changes_values=True)
def convolution(found, parts):
    """Replaces the layer. The weight may have a scale for each output channel."""
    in_type, weight_type = qnn.type_of(parts[real_x], "in_type"), qnn.type_of(parts[real_weight], "in_type")
    sums_type = qnn.accumulator_type(in_type, weight_type, axis=3)
    sums = qnn.conv2d(
        parts[x],
        parts[weight],
        qnn.constant((qnn.value_of(parts[bias]) / sums_type.scales).round(), "int32"),
        in_type=in_type,
        weight_type=weight_type,
        **{name: qnn.attribute_of(parts[layer], name) for name in ("strides", "padding", "dilation", "groups")},
    )
    return softsign.stored(sums, sums_type, qnn.type_of(found, "out_type"))
