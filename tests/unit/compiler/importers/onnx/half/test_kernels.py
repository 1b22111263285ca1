"""The table of float16 kernels is that of ONNX Runtime."""

from __future__ import annotations

from onnxruntime.capi import onnxruntime_pybind11_state as onnxruntime

from service.compiler.importers.onnx.half.kernels import has_kernel
from service.compiler.importers.onnx.operators import RULES
from service.compiler.importers.qdq import Operator

NEWEST = 26
# Their float16 kernels are for a part of their definition only, or concern a mask.
OTHERS = frozenset({"Cast", "CastLike"})
# Operators that are older than their first float16 kernel.
LATER = frozenset({"Clip", "DequantizeLinear", "IsInf", "Max", "Min", "QuantizeLinear"})


def kernels() -> dict[str, list[tuple[int, int]]]:
    found: dict[str, list[tuple[int, int]]] = {}
    for kernel in onnxruntime.get_all_opkernel_def():
        name = f"{kernel.domain}.{kernel.op_name}" if kernel.domain else kernel.op_name
        is_half = any("tensor(float16)" in types for types in kernel.type_constraints.values())
        if kernel.provider == "CPUExecutionProvider" and is_half:
            found.setdefault(name, []).append(tuple(kernel.version_range))
    return found


def test_each_operator_has_a_kernel_exactly_if_onnx_runtime_has_one() -> None:
    found = kernels()
    for name in RULES.keys() - OTHERS:
        if name.startswith("octet."):
            continue
        for opset in (7, 11, 12, 13, 17, 18, 19, 20, NEWEST):
            version = 1 if "." in name else opset
            exists = any(low <= version <= high for low, high in found.get(name, ()))
            is_defined = version >= min((low for low, _ in found.get(name, ())), default=0) or name in LATER
            if is_defined and version <= max((high for _, high in found.get(name, ())), default=NEWEST):
                assert has_kernel(Operator(0, name, (), (), {}), opset) == exists, (name, opset)
