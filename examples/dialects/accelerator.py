"""Offloads convolutions to an accelerator, which is simulated bit for bit.

octet dialect prove accelerator.py
octet compile --dialect accelerator.py model.onnx -o compiled --accept-differences

The accelerator takes convolutions of int8 with a zero point of 0 in the weight. It sums in int32 as everybody does, but
has its own way to convert the sums to int8: it multiplies their upper bits by a factor of 15 bits, and drops the
fraction. The pattern replaces each convolution and requantize that the accelerator can run, so the compiled model
answers as the accelerator will. All other layers stay as they are.
"""

import math

from octet import qnn
from octet.qnn import patterns as p

accelerator = qnn.Dialect("accelerator")


def supports(in_type, out_type):
    """Raises ValueError unless the factor between the two scales fits the accelerator's register."""
    if not 2.0**-16 <= in_type.scale / out_type.scale < 1:
        raise ValueError(f"the accelerator cannot scale by {in_type.scale / out_type.scale}")


@accelerator.integer(check=supports)
def convert(q, in_type, out_type):
    """(upper bits of the sum) * (factor of 15 bits), without the fraction"""
    fraction, exponent = math.frexp(in_type.scale / out_type.scale)  # fraction in [0.5, 1), exponent of at most 0
    factor = min(round(fraction * 2**15), 2**15 - 1)
    kept = qnn.clip(q >> 4, -(2**15), 2**15 - 1)
    return ((kept * factor) >> (11 - exponent)) + out_type.zero_point


sums = p.is_op("relax.qnn.conv2d")(p.wildcard(), p.is_const(), p.is_const())
stored = p.is_op("relax.qnn.requantize")(sums)


@accelerator.pattern(stored, changes_values=True)
def convolution(found, parts):
    """Lets the accelerator compute the layer if it can."""
    in_type, out_type = qnn.type_of(found, "in_type"), qnn.type_of(found, "out_type")
    weight_type = qnn.type_of(parts[sums], "weight_type")
    if not weight_type.storage == out_type.storage == "int8" or any(weight_type.zero_points):
        return None
    if not all(2.0**-16 <= scale / out_type.scale < 1 for scale in in_type.scales):
        return None
    return convert(parts[sums], in_type=in_type, out_type=out_type)
