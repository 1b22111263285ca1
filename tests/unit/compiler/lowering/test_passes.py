"""The effect of each pass on a small model: `passes/NAME.txt` contains the text before and after the pass.

`python -m tests.unit.compiler.lowering.test_passes` rewrites the files. Review the difference before you commit it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from service.compiler.kernels.libraries import library_for
from service.compiler.lowering import pass_order, toolchain
from service.compiler.lowering.passes import PIPELINE, Context, Dump, Pass
from service.compiler.qnn import ops, printer
from service.compiler.qnn.numerics import get_mode
from service.compiler.qnn.ops.builtin import GEMM, with_builtin
from service.compiler.qnn.ops.dynamic import CONV2D, SCALE
from service.compiler.qnn.types import QuantizedType, accumulator_type
from service.compiler.targets import codegen_target
from service.core.builds.numerics import LITERT_REFERENCE
from service.core.target import parse_target
from tests.support.qnn_models import Emit, module_of

import tvm  # isort: skip
from tvm import relax  # isort: skip

FOLDER = Path(__file__).with_name("passes")
SEPARATOR = "---- becomes ----\n"
X, W, Y = (QuantizedType("int8", (scale,), (zero,)) for scale, zero in ((0.5, 3), (0.25, 0), (1.0, -5)))
TARGET, MODE = parse_target("x86-64-v4+vnni"), get_mode(LITERT_REFERENCE)
ROW, BATCH = (1, 4), 2

Body = Callable[[Emit, relax.Expr], relax.Var]


def conv(emit: Emit, x: relax.Expr, in_type: QuantizedType, out_type: QuantizedType, stride: int = 1) -> relax.Var:
    """Emits a 1x1 convolution with two filters of ones."""
    weight = relax.const(np.ones((2, 1, 1, int(x.ty.shape[3])), np.int8))
    accumulators = emit(ops.conv2d(x, weight, None, in_type, W, strides=(stride, stride)))
    return emit(ops.requantize(accumulators, accumulator_type(in_type, W, axis=3), out_type))


def permuted(emit: Emit, x: relax.Expr) -> relax.Var:
    inside = emit(ops.requantize(emit(relax.op.permute_dims(x, [0, 3, 1, 2])), X, Y))
    return emit(relax.op.permute_dims(inside, [0, 2, 3, 1]))


def transposed(emit: Emit, x: relax.Expr) -> relax.Var:
    weight = relax.const(np.ones((1, 2, 2, 1), np.int8))
    accumulators = emit(ops.conv2d_transpose(x, weight, None, X, W, strides=(2, 2)))
    return emit(ops.requantize(accumulators, accumulator_type(X, W, axis=3), Y))


def constant(emit: Emit, x: relax.Expr) -> relax.Var:
    return emit(ops.add(x, emit(ops.requantize(relax.const(np.zeros(ROW, np.int8)), W, X)), X, X, Y))


def biased(emit: Emit, x: relax.Expr) -> relax.Var:
    products = emit(ops.real_matmul(x, relax.const(np.ones((4, 2), np.float32))))
    return emit(relax.op.add(products, relax.const(np.ones((1, 2), np.float32))))


def casts(emit: Emit, x: relax.Expr) -> relax.Var:
    moved = emit(relax.op.reshape(emit(ops.dequantize(x, X)), [4, 1]))
    return emit(ops.requantize(emit(ops.quantize(moved, X)), X, Y))


def halved(emit: Emit, x: relax.Expr) -> relax.Var:
    """Halves real values between two quantized tensors."""
    return emit(ops.quantize(emit(relax.op.multiply(emit(ops.dequantize(x, X)), relax.const(0.5, "float32"))), Y))


def reshaped(emit: Emit, x: relax.Expr) -> relax.Var:
    """Splits the channels by a reshape, slices one half, and requantizes it."""
    split = emit(relax.op.reshape(x, (1, 2, 2, 2)))
    part = emit(relax.op.strided_slice(split, [2], [1], [2], [1]))
    return emit(ops.requantize(emit(relax.op.reshape(part, (1, 2, 2, 1))), X, Y))


def dense(emit: Emit, x: relax.Expr) -> relax.Var:
    return emit(ops.dense(x, relax.const(np.ones((2, 4), np.int8)), None, X, W))


def product(emit: Emit, x: relax.Expr) -> relax.Var:
    return emit(relax.op.multiply(x, relax.const(np.ones(ROW, np.float32))))


def weighed(emit: Emit, x: relax.Var) -> relax.Var:
    weights = emit(ops.dequantize(relax.const(np.ones((4, 2), np.int8)), X))
    return emit(ops.real_matmul(x, weights))


def parameter(emit: Emit, x: relax.Var) -> relax.Var:
    scale = ops.dynamic_parameter(x, x, parameter=SCALE, shared=[1, 2], symmetric=True, kernel=CONV2D)
    return emit(relax.op.multiply(x, emit(scale)))


def padded(emit: Emit, x: relax.Var) -> relax.Var:
    real = emit(relax.op.nn.pad(emit(ops.dequantize(x, X)), [0, 0, 0, 1, 0, 1, 0, 0]))
    return emit(ops.quantize(real, X))


# Maps each pass to the shape and dtype of its model's input, and to a function that emits the model.
MODELS: dict[str, tuple[tuple[tuple[int, ...], str], Body]] = {
    "choose-kernels": ((ROW, "int8"), lambda emit, x: emit(with_builtin(ops.requantize(x, X, Y), GEMM, elements=4))),
    "batch": ((ROW, "int8"), lambda emit, x: emit(ops.requantize(x, X, Y))),
    "move-transposes": (((1, 2, 3, 4), "int8"), permuted),
    "decompose": (((1, 2, 2, 1), "int8"), transposed),
    "keep-weights": ((ROW, "float32"), weighed),
    "fold-constants": ((ROW, "int8"), constant),
    "join-biases": ((ROW, "float32"), biased),
    "move-pads": (((1, 2, 2, 1), "int8"), padded),
    "make-tables": ((ROW, "int8"), halved),
    "drop-casts": ((ROW, "int8"), casts),
    "move-reshapes": (((1, 2, 4), "int8"), reshaped),
    "move-strides": (((1, 4, 4, 1), "int8"), lambda emit, x: conv(emit, conv(emit, x, X, Y), Y, X, stride=2)),
    "share-ranges": (((1, 2, 2, 1), "float32"), parameter),
    "split-extremes": (((2, 3), "float32"), lambda emit, x: emit(relax.op.max(x, axis=[0, 1], keepdims=True))),
    "select": (((1, 2, 2, 4), "int8"), lambda emit, x: conv(emit, x, X, Y)),
    "legalize": ((ROW, "int8"), dense),
    "canonicalize": ((ROW, "int8"), lambda emit, x: emit(ops.dequantize(x, X))),
    **dict.fromkeys(
        ("fuse", "schedule", "lift-constants", "plan-memory", "lift-activations"), ((ROW, "float32"), product)
    ),
}


def context_of(name: str) -> Context:
    """Returns the context in which a pass runs.

    `legalize` runs without a kernel library, so that all operators are left for it. For `batch`, a call has two
    samples.
    """
    library = None if name == "legalize" else library_for(TARGET, MODE)
    return Context(MODE, codegen_target(TARGET), library, BATCH if name == "batch" else 1)


def model_of(name: str) -> tvm.IRModule:
    shaped, body = MODELS[name]
    return module_of([shaped], lambda emit, inputs: body(emit, inputs[0]))


def text_of(name: str) -> str:
    """Runs the passes up to `name` on its model, and returns the model's text before and after this pass.

    Digests are removed from the names of kernels, because they do not show what the pass does.
    """
    model = model_of(name)
    texts = [printer.text_of(model)]
    PIPELINE.until(name).run(model, context_of(name), after=lambda each, module: texts.append(each.text_of(module)))
    return re.sub(r"(octet_[a-z]+)_[0-9a-f]{16}", r"\1", SEPARATOR.join(texts[-2:]))


@pytest.mark.parametrize("name", MODELS)
def test_a_pass_changes_the_model_as_in_its_file(name: str) -> None:
    assert text_of(name) == (FOLDER / f"{name}.txt").read_text()


@pytest.mark.parametrize("name", MODELS)
def test_each_pass_changes_its_model(name: str) -> None:
    before, after = (FOLDER / f"{name}.txt").read_text().split(SEPARATOR)
    assert before != after


def test_every_pass_of_the_pipeline_has_a_model() -> None:
    assert list(MODELS) == [each.name for each in PIPELINE.passes]


def test_the_pipeline_prints_as_the_text_in_the_key_of_every_build() -> None:
    assert str(PIPELINE) == pass_order.text() == toolchain.fingerprint()["passes"]


def test_passes_are_announced_in_order() -> None:
    begun: list[Pass] = []
    PIPELINE.run(model_of("select"), context_of("select"), before=begun.append)
    assert tuple(begun) == PIPELINE.passes


def test_a_dump_is_a_numbered_file_for_each_pass(tmp_path: Path) -> None:
    model = model_of("select")
    PIPELINE.run(model, context_of("select"), after=Dump(tmp_path, model))
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == [f"{index:02}-{name}.txt" for index, name in enumerate(["import", *pass_order.ORDER])]


if __name__ == "__main__":
    for name in MODELS:
        (FOLDER / f"{name}.txt").write_text(text_of(name))
