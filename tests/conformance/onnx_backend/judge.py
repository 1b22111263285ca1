"""Runs a case of ONNX's backend tests: imports its model, compiles it for this machine, and compares the outputs with
those of the case.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from service.compiler.importers.imported import ImportedModel
from service.compiler.importers.onnx.importer import import_model
from service.compiler.qnn import oracle
from service.compiler.qnn.numerics import get_mode
from service.core.builds.numerics import ONNXRUNTIME
from service.core.errors import OctetError
from service.core.models.arrays import Array
from service.core.target import detect_host
from service.core.verification.free_rows import COUNT
from tests.conformance.onnx_backend.outcomes import AS_REFERENCE, CLOSE, DIFFERS, EQUAL, FAILED, REFUSED
from tests.support.onnx_reference import Reference
from tests.support.selected import build_selected

# An output also passes if it differs by this fraction of the largest value: the suite's own tolerance does not allow
# for sums of many elements.
_OF_LARGEST = {"float16": 2e-3}
_OF_LARGEST_FLOAT = 1e-5
_REFUSALS = ("unsupported", "unsupported_operator")


@dataclass(frozen=True)
class Case:
    """A case of the suite.

    Attributes:
        operators: the types of the model's operators.
        tolerance: relative and absolute.
        models: the models of the case, each with the inputs that its caller sends. The first model that can be imported
            counts.
        inputs, outputs: all inputs and the expected outputs; empty if they are not all tensors of numbers.
    """

    name: str
    suite: str
    operators: Sequence[str]
    opset: int
    tolerance: tuple[float, float]
    models: Sequence[tuple[bytes, Sequence[int]]]
    inputs: Sequence[Array]
    outputs: Sequence[Array]


@dataclass(frozen=True)
class Verdict:
    """The result of a case.

    Attributes:
        outcome: one of the constants above.
        text: the reason for a refusal, or what differs.
        tensors: type and shape of each input: `float32[1, 3]`.
        in_reference: true if ONNX Runtime runs the case.
    """

    outcome: str
    text: str = ""
    tensors: Sequence[str] = field(default=())
    in_reference: bool = False


def load_cases(folder: Path, positions: slice, words: Sequence[str] = ()) -> Iterator[Case]:
    """Yields the cases at some positions of those that `collect.py` wrote to the folder.

    Args:
        words: words that the names of the cases contain.
    """
    with np.load(folder / "arrays.npz") as arrays:
        for entry in json.loads((folder / "cases.json").read_text())[positions]:
            if not all(word in entry["name"] for word in words):
                continue
            name = entry["name"]
            models = [
                (arrays[f"{name}.{variant}"].tobytes(), entry[variant])
                for variant in ("given", "constants")
                if variant in entry
            ]
            inputs, outputs = (
                [
                    _typed(arrays[f"{name}.{kind}{index}"], dtype)
                    for index, dtype in enumerate(entry.get(f"{kind}s", ()))
                ]
                for kind in ("input", "output")
            )
            keys = ("suite", "operators", "opset", "tolerance")
            suite, operators, opset, tolerance = (entry[key] for key in keys)
            yield Case(name, suite, operators, opset, tuple(tolerance), models, inputs, outputs)


def _typed(data: Array, dtype: str) -> Array:
    return data if data.dtype.name == dtype else data.view(getattr(ml_dtypes, dtype))


def judge(case: Case, *, compiled: bool) -> Verdict:
    """Runs a case. If `compiled` is false, the oracle computes the outputs instead of compiled code."""
    expected = _reference_outputs(case)
    runs = expected is not None
    verdict = Verdict(REFUSED, "has no model")
    for data, sent in case.models:
        try:
            imported = import_model(data)
        except OctetError as error:
            outcome = REFUSED if error.code in _REFUSALS else FAILED
            verdict = Verdict(outcome, error.message, in_reference=runs)
            continue
        except Exception as error:
            verdict = Verdict(FAILED, _line_of(error), in_reference=runs)
            continue
        inputs = [sendable(case.inputs[index]) for index in sent] or [np.zeros(1, np.float32)]
        tensors = [f"{each.dtype.name}{list(each.shape)}" for each in inputs]
        try:
            actual = _outputs(imported, inputs, compiled=compiled)
            outcome, text = _outcome(case.tolerance, actual, [sendable(each) for each in case.outputs])
            if outcome == DIFFERS and expected and _outcome(case.tolerance, actual, expected)[0] in (EQUAL, CLOSE):
                outcome, text = AS_REFERENCE, ""
        except Exception as error:
            outcome, text = FAILED, _line_of(error)
        return Verdict(outcome, text, tensors, runs)
    return verdict


def sendable(values: Array) -> Array:
    """Returns values of bfloat16 and smaller real types as float32, in which clients send and receive them."""
    return values.astype(np.float32) if values.dtype.name.startswith(("bfloat", "float8", "float4")) else values


def _line_of(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0][:200]


def _reference_outputs(case: Case) -> list[Array] | None:
    """Returns the outputs of ONNX Runtime for the case's own model, or None if it does not run the model. The list is
    empty if the inputs are not all tensors of numbers.
    """
    try:
        reference = Reference(case.models[0][0], optimized=False)
        return reference(case.inputs) if case.outputs else []
    except Exception:
        return None


def _outputs(imported: ImportedModel, inputs: Sequence[Array], *, compiled: bool) -> list[Array]:
    """Returns the outputs of compiled code, which must equal those of the oracle bit for bit."""
    expected = oracle.run(imported.module, get_mode(ONNXRUNTIME), inputs)
    if not compiled:
        return _counted(imported, expected)
    with tempfile.TemporaryDirectory() as scratch:
        _, run = build_selected(imported.module, detect_host().target, ONNXRUNTIME, inputs, Path(scratch))
        actual = run(inputs)
    # The runtime that `build_selected` loads returns the bits of float16 values.
    typed = [
        ours.view(np.float16) if oracles.dtype == np.float16 else ours
        for ours, oracles in zip(actual, expected, strict=True)
    ]
    for ours, oracles in zip(typed, expected, strict=True):
        np.testing.assert_array_equal(ours, oracles)
    return _counted(imported, typed)


def _counted(imported: ImportedModel, outputs: Sequence[Array]) -> list[Array]:
    """Returns the outputs without the rows that do not count, and without the numbers of rows."""
    names = [spec.name for spec in imported.signature.outputs]
    found = []
    for spec, output in zip(imported.signature.outputs, outputs, strict=True):
        if f"{spec.name}{COUNT}" in names:
            axis = next(axis for axis, size in enumerate(spec.shape) if size > 1)
            count = int(outputs[names.index(f"{spec.name}{COUNT}")].reshape(-1)[0])
            found.append(np.take(output, range(count), axis))
        elif not (spec.name.endswith(COUNT) and spec.name.removesuffix(COUNT) in names):
            found.append(output)
    return found


def _outcome(tolerance: tuple[float, float], actual: Sequence[Array], expected: Sequence[Array]) -> tuple[str, str]:
    relative, absolute = tolerance
    outcome = EQUAL
    for index, wanted in enumerate(expected):
        own = actual[index]
        if own.shape != wanted.shape or own.dtype != wanted.dtype:
            text = f"output {index} is {own.dtype}{list(own.shape)}, not {wanted.dtype}{list(wanted.shape)}"
            return DIFFERS, text
        if np.array_equal(own, wanted, equal_nan=own.dtype.kind == "f"):
            continue
        if own.dtype.kind == "f":
            finite = np.abs(wanted[np.isfinite(wanted)]).astype(np.float64)
            allowed = absolute + _OF_LARGEST.get(own.dtype.name, _OF_LARGEST_FLOAT) * float(finite.max(initial=0))
            if np.allclose(own.astype(np.float64), wanted.astype(np.float64), relative, allowed, equal_nan=True):
                outcome = CLOSE
                continue
        return DIFFERS, f"{int((own != wanted).sum())} of {own.size} values of output {index} differ"
    return outcome, ""


def as_json(verdict: Verdict, case: Case) -> Mapping[str, Any]:
    return {
        "suite": case.suite,
        "operator": case.operators[0] if len(set(case.operators)) == 1 else "",
        "outcome": verdict.outcome,
        "text": verdict.text,
        "tensors": list(verdict.tensors),
        "reference": verdict.in_reference,
    }
