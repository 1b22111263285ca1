"""Proves the operators of a dialect: compiles each of them, and compares every result with the oracle.

A function of one 8-bit value is computed for all of its 256 inputs, as a table and as the epilogue of a convolution
whose accumulators take these values. Functions of wider values are computed for boundaries and random samples: all
exponents and signs of float32, infinities and NaN, and all 65,536 values of int16.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from tvm import relax

from service.cache import OciLayout
from service.compiler.build.local import compile_to
from service.compiler.dialects.building import Graph, Module
from service.compiler.dialects.operators import Operator
from service.compiler.qnn import ops
from service.compiler.qnn.operation import IllTyped
from service.compiler.qnn.ops.defined import Definition
from service.compiler.qnn.types import STORAGE_RANGES, QuantizedType
from service.core.builds.build import Stage
from service.core.errors import UnsupportedOperator, VerificationFailed
from service.core.models.arrays import Array
from service.core.settings import Settings
from service.runtime import load_model

_SAMPLES = 1 << 14
_FAR = (0.0, -0.0, np.inf, -np.inf, np.nan)
_CHANNELS = 16
_INPUT = QuantizedType("int8", (0.05,), (3,))
_UNSIGNED = QuantizedType("uint8", (0.04,), (131,))
_WIDE = QuantizedType("int16", (2.0**-9,), (0,))
_OUTPUT = QuantizedType("int8", (1 / 64,), (-7,))
_WIDE_OUTPUT = QuantizedType("int16", (2.0**-12,), (0,))


@dataclass(frozen=True)
class Proof:
    """The result of one form of an operator on one target.

    Attributes:
        form: the compiled form, such as `int8 table, every input`.
        compared: the number of compared values.
        different: how many of them differ from the oracle's.
        refusal: the reason why nothing was compared, or the report of the build; "" if the form was compared.
    """

    operator: str
    form: str
    target: str
    compared: int = 0
    different: int = 0
    refusal: str = ""


@dataclass(frozen=True)
class _Case:
    form: str
    module: Module
    inputs: Sequence[Array]


def prove(
    operator: Operator, targets: Sequence[str], numerics: str, settings: Settings, begin: Callable[[str], None]
) -> Iterator[Proof]:
    """Yields the result of each form on each target. The targets' code must run on this machine.

    Args:
        begin: called with a sentence before each build.
    """
    for form, build in _forms(operator.definition):
        for target in targets:
            begin(f"{operator.name}: {form} on {target}")
            try:
                case = build(operator)
                expected = case.module.evaluate(*case.inputs, numerics=numerics)
                found = _run(case, target, numerics, settings)
            except (IllTyped, UnsupportedOperator) as error:
                yield Proof(operator.name, form, target, refusal=error.message)
                continue
            except VerificationFailed as error:  # the build's own check found a difference
                yield Proof(operator.name, form, target, 1, 1, error.message)
                continue
            pairs = list(zip(expected, found, strict=True))
            different = sum(_different(a, b) for a, b in pairs)
            yield Proof(operator.name, form, target, sum(a.size for a, _ in pairs), different)


def _forms(definition: Definition) -> list[tuple[str, Callable[[Operator], _Case]]]:
    if definition.takes_integers:
        one = definition.operands == 1
        return [
            ("int8" if one else "int8, all pairs", lambda operator: _integers(operator, _INPUT, _OUTPUT)),
            ("uint8" if one else "uint8, all pairs", lambda operator: _integers(operator, _UNSIGNED, _UNSIGNED)),
            ("int16", lambda operator: _integers(operator, _WIDE, _WIDE_OUTPUT)),
            *([("epilogue of a convolution", _epilogue)] if one else []),
        ]
    forms: list[tuple[str, Callable[[Operator], _Case]]] = [("float32, samples and boundaries", _real)]
    if definition.operands == 1:
        forms += [
            ("int8 table, every input", lambda operator: _table(operator, _INPUT, _OUTPUT)),
            ("uint8 table, every input", lambda operator: _table(operator, _UNSIGNED, _OUTPUT)),
            ("int16, every input", lambda operator: _stored(operator, _WIDE, _WIDE_OUTPUT)),
            ("epilogue of a convolution", _epilogue),
        ]
    return forms


def _real(operator: Operator) -> _Case:
    inputs = [_floats(seed).reshape(-1, _CHANNELS) for seed in range(operator.definition.operands)]
    with Graph() as graph:
        operands = [graph.input(f"x{index}", value.shape, "float32") for index, value in enumerate(inputs)]
        graph.output(y=graph.emit(operator(*operands), "y"))
    return _Case("float32", graph.module, inputs)


def _table(operator: Operator, in_type: QuantizedType, out_type: QuantizedType) -> _Case:
    values = _all_of(in_type.storage).reshape(1, 4, 4, _CHANNELS)
    with Graph() as graph:
        x = graph.input("x", values.shape, in_type.storage)
        real = graph.emit(operator(graph.emit(ops.dequantize(x, in_type))))
        graph.output(y=graph.emit(ops.quantize(real, out_type), "y"))
    return _Case("table", graph.module, [values])


def _stored(operator: Operator, in_type: QuantizedType, out_type: QuantizedType) -> _Case:
    values = _all_of(in_type.storage).reshape(-1, _CHANNELS)
    with Graph() as graph:
        x = graph.input("x", values.shape, in_type.storage)
        graph.output(y=graph.emit(operator.stored(x, in_type, out_type), "y"))
    return _Case("stored", graph.module, [values])


def _epilogue(operator: Operator) -> _Case:
    """Builds a convolution of one pixel. Its accumulators are all products of an 8-bit value and a weight."""
    values = np.repeat(_all_of("int8"), 8).reshape(1, 16, 16, 8)
    weight = np.zeros((_CHANNELS, 1, 1, 8), np.int8)
    weight[:, 0, 0, 0] = np.linspace(-127, 127, _CHANNELS).astype(np.int8)
    scales = tuple(float(np.float32(2.0 ** (-4 - 0.5 * channel))) for channel in range(_CHANNELS))
    accumulators = QuantizedType("int32", scales, (0,) * _CHANNELS, axis=3)
    convert: Callable[..., relax.Call] = operator.stored
    if operator.definition.takes_integers:
        convert = operator
        accumulators = replace(accumulators, scales=tuple(scale / 64 for scale in scales))
    with Graph() as graph:
        x = graph.input("x", values.shape, "int8")
        weight_type = QuantizedType("int8", (1.0,), (0,))
        bias = relax.const(np.zeros(_CHANNELS, np.int32))
        sums = ops.conv2d(x, relax.const(weight), bias, in_type=_INPUT, weight_type=weight_type)
        graph.output(y=graph.emit(convert(graph.emit(sums, "sums"), in_type=accumulators, out_type=_OUTPUT), "y"))
    return _Case("epilogue", graph.module, [values])


def _integers(operator: Operator, in_type: QuantizedType, out_type: QuantizedType) -> _Case:
    every = _all_of(in_type.storage)
    if operator.definition.operands == 1:
        inputs, names = [every.reshape(-1, _CHANNELS)], ["in_type"]
    else:
        few = every if every.size == 256 else np.random.default_rng(0).permutation(every)[:256]
        inputs, names = [few.reshape(-1, 1), few.reshape(1, -1)], ["lhs_type", "rhs_type"]
    with Graph() as graph:
        operands = [graph.input(f"x{index}", value.shape, in_type.storage) for index, value in enumerate(inputs)]
        types = {**dict.fromkeys(names, in_type), "out_type": out_type}
        graph.output(y=graph.emit(operator(*operands, **types), "y"))
    return _Case("integers", graph.module, inputs)


def _all_of(storage: str) -> Array:
    low, high = STORAGE_RANGES[storage]
    return np.arange(low, high + 1).astype(storage)


def _floats(seed: int) -> Array:
    """Returns float32 values of every exponent and sign, special values, and values of everyday sizes."""
    rng = np.random.default_rng(seed)
    bits = rng.integers(0, 1 << 32, _SAMPLES // 2, np.uint32).view(np.float32)
    usual = rng.normal(0, 4, _SAMPLES // 2 - len(_FAR)).astype(np.float32)
    return rng.permutation(np.concatenate([bits, usual, np.array(_FAR, np.float32)]))


def _run(case: _Case, target: str, numerics: str, settings: Settings) -> list[Array]:
    with tempfile.TemporaryDirectory(prefix="octet-proof-") as folder:
        source = Path(folder) / "model.qnn"
        case.module.save(source)
        directory = Path(folder) / "compiled"
        compile_to(source, directory, target, numerics, {}, settings, _Silent())
        made = load_model(OciLayout.open(directory), 1)(*case.inputs)
        return [np.array(each) for each in (made if isinstance(made, tuple) else (made,))]


def _different(expected: Array, found: Array) -> int:
    same = (expected == found) | ((expected != expected) & (found != found))
    return int(np.count_nonzero(~same))


class _Silent:
    """Ignores the progress of a build (`core.builds.build.Progress`)."""

    def stage(self, stage: Stage, fraction: float = 0.0) -> None:
        """Ignores a stage."""

    def log(self, line: str) -> None:
        """Ignores a line of the log."""
