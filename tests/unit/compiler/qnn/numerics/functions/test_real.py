"""Functions of float32: for numbers of every magnitude, generated code gives the oracle's bits, for single values and
for vectors.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import tvm

from service.compiler.kernels.kernel import Kernel
from service.compiler.kernels.program import Program, load
from service.compiler.kernels.vector.isa import Isa
from service.compiler.lowering.codegen import FUSE
from service.compiler.lowering.schedule import schedule
from service.compiler.qnn import ops, oracle
from service.compiler.qnn.canonicalize import canonicalize
from service.compiler.qnn.expressions.tensors import BoundOps
from service.compiler.qnn.numerics import get_mode
from service.compiler.qnn.numerics.functions.real import FUNCTIONS
from service.compiler.qnn.operation import IllTyped
from service.compiler.qnn.ops import real
from service.compiler.targets import codegen_target
from service.core.builds.numerics import MODES, ONNXRUNTIME
from service.core.target import detect_host
from tests.support.images import RUNNABLE, run
from tests.support.qnn_models import compile_and_run, module_of
from tests.support.real_values import NOTABLE, of_every_size

NAMES = sorted(FUNCTIONS)
EXACT: dict[str, Callable[[float], float]] = {
    "erf": math.erf,
    "exp": math.exp,
    "logistic": lambda x: 1 / (1 + math.exp(-x)),
    "tanh": math.tanh,
}


def same_bits(got: np.ndarray, expected: np.ndarray) -> bool:
    """Returns true if the bits are equal. NaNs are equal whatever their payloads are."""
    differ = got.view(np.int32) != expected.view(np.int32)
    return not np.any(differ & ~(np.isnan(got) & np.isnan(expected)))


def evaluated(name: str, x: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        return FUNCTIONS[name].evaluate(x)


@pytest.mark.parametrize("name", NAMES)
def test_a_compiled_function_has_the_oracles_bits(name: str) -> None:
    x = of_every_size()
    module = module_of([(x.shape, "float32")], lambda emit, inputs: emit(ops.real_function(name, inputs[0])))
    target = codegen_target(detect_host().target)
    llvm = tvm.target.Target(dict(target.llvm))
    with llvm:
        plain = canonicalize(module, get_mode(ONNXRUNTIME))
        got = compile_and_run(schedule(tvm.transform.Sequential(list(FUSE))(plain), target), [x], llvm)
    assert same_bits(got, oracle.run(module, get_mode(ONNXRUNTIME), [x])[0])


@pytest.mark.skipif(not RUNNABLE, reason="no x86-64 target runs here")
@pytest.mark.parametrize("isa", RUNNABLE, ids=lambda isa: isa.name)
@pytest.mark.parametrize("name", NAMES)
def test_a_function_of_a_vector_has_the_oracles_bits(name: str, isa: Isa) -> None:
    x, lanes = of_every_size(), isa.lanes
    x = x[: x.size // lanes * lanes]
    program = Program()
    source, target = (program.parameter(end, "float32", x.size) for end in ("source", "target"))
    with program.loop(x.size // lanes, "step") as step:
        value = program.bind(load(source, step * lanes, lanes), f"float32x{lanes}")
        program.store(target, step * lanes, FUNCTIONS[name].express(BoundOps(lanes, program.bind), value), lanes)
    got = run(isa, Kernel("function", program.function(), (), 4 * x.size), x, dtype="float32")
    assert same_bits(got, evaluated(name, x))


@pytest.mark.parametrize(("name", "units"), [("erf", 1), ("exp", 1), ("tanh", 5)])
def test_a_function_is_within_a_few_units_in_the_last_place(name: str, units: int) -> None:
    x = np.linspace(-20, 20, 20011).astype(np.float32)
    exact = np.array([EXACT[name](float(value)) for value in x])
    error = np.abs(evaluated(name, x) - exact) / np.spacing(np.abs(exact).astype(np.float32))
    assert np.all(error <= units)


def test_the_logistic_function_has_an_absolute_error() -> None:
    """The error is at most three units in the last place of 1/2, because the function is computed as the sum of 1/2 and
    a ratio.
    """
    x = np.linspace(-20, 20, 20011).astype(np.float32)
    exact = np.array([EXACT["logistic"](float(value)) for value in x])
    assert np.all(np.abs(evaluated("logistic", x) - exact) <= 3 * np.spacing(np.float32(0.5)))


@pytest.mark.parametrize("name", NAMES)
def test_limits(name: str) -> None:
    low, high, none, zero = evaluated(name, NOTABLE)[:4].tolist()
    limits = {"erf": (-1, 1, 0), "exp": (0, math.inf, 1), "logistic": (0, 1, 0.5), "tanh": (-1, 1, 0)}
    assert (low, high, zero) == pytest.approx(limits[name], abs=1e-44)
    assert math.isnan(none)


def test_every_mode_defines_every_function() -> None:
    assert set(real.FUNCTIONS) == set(FUNCTIONS)
    for mode in MODES:
        assert {f"real_{name}" for name in FUNCTIONS} <= get_mode(mode).formulas.keys()


def test_a_function_needs_float32() -> None:
    with pytest.raises(IllTyped, match="float32, not uint8"):
        module_of([((4,), "uint8")], lambda emit, inputs: emit(ops.real_function("exp", inputs[0])))
