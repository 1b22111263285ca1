"""Writes the cases of ONNX's backend tests to a folder. Runs in an environment that has the package `onnx`:

    PYTHON tests/conformance/onnx_backend/collect.py FOLDER

`cases.json` describes each case, and `arrays.npz` contains its models, inputs and outputs. The suite passes parameters
(axes, sizes, scales, recurrent weights) as inputs. Models of users contain them as constants, so a case with such
inputs has a second model in which they are constants.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

STORED = ("pytorch-converted", "pytorch-operator", "simple")  # the suite's folders of models with data
_WEIGHTS = ("ConvTranspose", "GRU", "LSTM", "RNN")  # operators whose further inputs are weights
_SCALED = ("Resize", "Upsample")  # operators whose further inputs are real parameters
# Operators whose first input is a parameter, too.
_OF_PARAMETERS = (
    *("BlackmanWindow", "ConstantOfShape", "HammingWindow", "HannWindow", "Loop", "MelWeightMatrix", "Range"),
)
_RECURRENT_PARAMETERS = 4  # X, W, R, B; the later inputs are states
_FIRST_LIMIT = 2  # the first of NonMaxSuppression's limits; its inputs before are boxes and scores
_UNUSED = "octet_unused"  # an input of models that have no other


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    arrays: dict[str, Any] = {}
    described = []
    for name, suite, model, inputs, outputs, tolerance in _cases():
        kept = list(range(len(inputs)))
        operators = [node.op_type for node in model.graph.node]
        arrays[f"{name}.given"] = np.frombuffer(model.SerializeToString(), np.uint8)
        plain = all(isinstance(each, np.ndarray) and each.dtype.kind != "O" for each in (*inputs, *outputs))
        case = {
            "name": name,
            "suite": suite,
            "operators": operators,
            "opset": next((each.version for each in model.opset_import if each.domain in ("", "ai.onnx")), 0),
            "tolerance": tolerance,
            "plain": plain,
            "given": kept,
        }
        if plain:
            case["inputs"], case["outputs"] = (
                [_stored(arrays, f"{name}.{kind}{index}", each) for index, each in enumerate(values)]
                for kind, values in (("input", inputs), ("output", outputs))
            )
            kept = [index for index in kept if not _is_parameter(operators, inputs, index)]
            if len(kept) < len(inputs) or not inputs:
                arrays[f"{name}.constants"] = _with_constants(model, inputs, kept)
                case["constants"] = kept
        described.append(case)
    np.savez_compressed(folder / "arrays.npz", **arrays)
    (folder / "cases.json").write_text(json.dumps(described))
    print(f"{len(described)} cases")


def _cases() -> Iterator[tuple[str, str, Any, list[Any], list[Any], tuple[float, float]]]:
    """Yields name, suite, model, inputs, outputs, and the relative and absolute tolerance of each case."""
    import onnx  # type: ignore[import-not-found]
    import onnx.backend.test  # type: ignore[import-not-found]
    from onnx.backend.test.case.node import collect_testcases  # type: ignore[import-not-found]

    for case in collect_testcases(None):
        for inputs, outputs in case.data_sets[:1]:
            values = ([_value(each) for each in inputs], [_value(each) for each in outputs])
            yield case.name, "node", case.model, *values, (case.rtol, case.atol)
    for suite in STORED:
        folder = Path(onnx.backend.test.__file__).parent / "data" / suite
        for each in sorted(folder.iterdir()):
            model = onnx.load(each / "model.onnx")
            data = each / "test_data_set_0"
            ends = (("input", model.graph.input), ("output", model.graph.output))
            inputs, outputs = (
                [_read(data / f"{kind}_{index}.pb", end.type) for index, end in enumerate(of)
                 if (data / f"{kind}_{index}.pb").exists()]
                for kind, of in ends
            )  # fmt: skip
            yield each.name, suite, model, inputs, outputs, (1e-3, 1e-7)


def _read(path: Path, type_: Any) -> Any:
    import onnx

    for field, message in (("sequence_type", onnx.SequenceProto), ("optional_type", onnx.OptionalProto)):
        if type_.HasField(field):
            return message.FromString(path.read_bytes())
    return _value(onnx.TensorProto.FromString(path.read_bytes()))


def _value(value: Any) -> Any:
    from onnx import TensorProto, numpy_helper

    if isinstance(value, TensorProto):
        return numpy_helper.to_array(value)
    return np.asarray(value) if isinstance(value, np.generic) else value


def _stored(arrays: dict[str, Any], key: str, value: Any) -> str:
    """Stores an array and returns its dtype. NumPy cannot store types of other packages, so their bits are stored."""
    arrays[key] = value if value.dtype.isbuiltin == 1 else value.view(f"u{value.dtype.itemsize}")
    return str(value.dtype.name)


def _is_parameter(operators: list[str], inputs: list[Any], index: int) -> bool:
    value, first = inputs[index], operators[0] if operators else ""
    if value.size == 0 or (index == 0 and (first in _OF_PARAMETERS or "Range" in operators)):
        return True
    if index == 0:
        return False
    is_quantized = any(each.startswith(("Q", "Dequantize")) or "Integer" in each for each in operators)
    is_weight = first in _SCALED or (first in _WEIGHTS and index < _RECURRENT_PARAMETERS)
    is_weight |= first == "NonMaxSuppression" and index >= _FIRST_LIMIT
    return bool(is_quantized or is_weight or value.ndim == 0 or (value.dtype.kind in "iu" and value.ndim == 1))


def _with_constants(model: Any, inputs: list[Any], kept: list[int]) -> Any:
    """Returns the file of the model in which all inputs except `kept` are constants. A model without inputs gets one
    that nothing uses.
    """
    from onnx import ModelProto, helper, numpy_helper

    changed = ModelProto.FromString(model.SerializeToString())
    ends = list(changed.graph.input)
    for index, value in enumerate(inputs):
        if index not in kept:
            constant = numpy_helper.from_array(value, ends[index].name)
            constant.data_type = ends[index].type.tensor_type.elem_type
            changed.graph.initializer.append(constant)
    del changed.graph.input[:]
    changed.graph.input.extend(ends[index] for index in kept)
    if not kept:
        changed.graph.input.append(helper.make_tensor_value_info(_UNUSED, 1, [1]))
        changed.graph.output.append(helper.make_tensor_value_info(f"{_UNUSED}_output", 1, [1]))
        changed.graph.node.append(helper.make_node("Identity", [_UNUSED], [f"{_UNUSED}_output"]))
    return np.frombuffer(changed.SerializeToString(), np.uint8)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
