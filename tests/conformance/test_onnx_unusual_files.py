"""Unusual files that ONNX Runtime loads. Each is built and gives ONNX Runtime's results."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from service.compiler.importers.onnx.importer import import_model
from service.core.errors import Unsupported
from tests.support.onnx_builder import OnnxBuilder, message, number, tensor
from tests.support.onnx_files import outputs

RNG = np.random.default_rng(7)
WEIGHTS = RNG.integers(-127, 128, (4, 3, 3, 3))
STEPS = RNG.uniform(0.001, 0.01, 4)


def image(model: OnnxBuilder) -> str:
    return model.input("x", "float32", [1, 3, 8, 8])


def stored(model: OnnxBuilder, x: str, scale: float = 0.05, point: int = 100) -> str:
    """Quantizes and dequantizes `x`."""
    return model.dequantized(model.quantized(x, scale, point, "uint8"), scale, point, "uint8")


def convolution(model: OnnxBuilder, x: str) -> str:
    weights = model.dequantized(model.constant(WEIGHTS, "int8"), STEPS, [0] * 4, "int8", axis=0)
    return model.node("Conv", [x, weights])


def unsorted() -> bytes:
    model = OnnxBuilder()
    model.output(stored(model, convolution(model, stored(model, image(model)))), "float32")
    model.nodes = [model.nodes[position] for position in RNG.permutation(len(model.nodes))]
    return model.build()


def declared_otherwise() -> bytes:
    """The file declares a wrong rank for the output, and a wrong shape for another tensor."""
    model = OnnxBuilder()
    y = stored(model, convolution(model, stored(model, image(model))))
    model.output(y, "float32", [1, "length"])
    return model.build()


def negative_batch() -> bytes:
    model = OnnxBuilder()
    x = model.input("x", "float32", [-1, 3, 8, 8])
    model.output(stored(model, convolution(model, stored(model, x))), "float32", [-1, 4, 6, 6])
    return model.build()


def only_microsofts_operators() -> bytes:
    model = OnnxBuilder()
    model.input("a", "uint8", [1, 8])
    model.input("b", "uint8", [1, 8])
    operands = [
        part for name, step in (("a", 0.1), ("b", 0.2)) for part in (name, *model.quantization(step, 9, "uint8"))
    ]
    model.output(model.microsoft("QLinearAdd", [*operands, *model.quantization(0.25, 3, "uint8")]), "uint8")
    return model.build(opset=None)


def old_operators(opset: int) -> Callable[[], bytes]:
    """The Slice, TopK and Upsample in this file have attributes that became inputs in later operator sets."""

    def build() -> bytes:
        model = OnnxBuilder()
        part = model.node("Slice", [image(model)], starts=[0, 1], ends=[9, 1 << 40], axes=[1, 2])
        scales = [1.0, 1.0, 2.0, 2.0]
        if opset < 9:
            larger = model.node("Upsample", [part], scales=scales, mode="nearest")
        else:
            larger = model.node("Upsample", [part, model.constant(scales, "float32")], mode="nearest")
        values, positions = model.name(), model.name()
        model.node("TopK", [model.node("Softmax", [larger], axis=2)], [values, positions], k=3, axis=3)
        model.output(model.node("Relu", [larger]), "float32")
        model.output(positions, "int64")
        return model.build(opset)

    return build


def ends_that_depend_on_no_input() -> bytes:
    """The outputs of this model are its input, a constant, a shape, a dequantized constant, and one tensor twice."""
    model = OnnxBuilder()
    y = stored(model, image(model))
    for name in (y, "x", y):
        model.output(name, "float32")
    model.output(model.constant([1.5, 2.5], "float32"), "float32")
    model.output(model.node("Shape", ["x"]), "int64")
    model.output(model.dequantized(model.constant([3, 4], "uint8"), 0.5, 1, "uint8"), "float32")
    return model.build()


def outputs_without_a_type() -> bytes:
    model = OnnxBuilder()
    y = stored(model, convolution(model, stored(model, image(model))))
    model.outputs.append(message(1, y))
    return model.build()


def functions() -> bytes:
    """The model contains a function that quantizes, and a function that calls it with an attribute. Both are called
    twice.
    """
    model, inner, outer = OnnxBuilder(), OnnxBuilder(), OnnxBuilder()
    for name, value in (("s", np.float32(0.05)), ("z", np.uint8(100))):
        inner.node("Constant", [], [name], value=np.asarray(value))
    inner.node("QuantizeLinear", ["a", "s", "z"], ["q"])
    inner.node("DequantizeLinear", ["q", "s", "z"], ["b"])
    outer.node("LeakyRelu", ["a"], ["r"])
    outer.nodes[-1] += message(5, message(1, "alpha") + message(21, "slope") + number(20, 1))
    outer.node("Stored", ["r"], ["b"], domain="local")
    model.functions = [
        inner.function("Stored", ["a"], ["b"]),
        outer.function("Sloped", ["a"], ["b"]) + message(6, "slope"),
    ]
    x = model.node("Stored", [image(model)], domain="local")
    y = model.node("Sloped", [convolution(model, x)], domain="local", slope=0.25)
    model.output(model.node("Sloped", [y], domain="local", slope=0.5), "float32")
    return model.build()


def branch(*, is_taken: bool, captured: str) -> OnnxBuilder:
    """Returns a branch of an `If`. It reads a tensor of the outer graph, and has the same tensor names as the other
    branch.
    """
    model = OnnxBuilder()
    model.constants.append(tensor("c", np.array([1.0 if is_taken else 2.0], np.float32)))
    model.node("Mul", [captured, "c"], ["inner"])
    model.output("inner", "float32")
    return model


def choice(model: OnnxBuilder, condition: str, captured: str) -> str:
    return model.node(
        "If",
        [condition],
        then_branch=branch(is_taken=True, captured=captured).graph(),
        else_branch=branch(is_taken=False, captured=captured).graph(),
    )


def conditions() -> bytes:
    """The model contains an `If` with a constant condition, one with a condition computed from a shape, and one around
    another `If`.
    """
    model = OnnxBuilder()
    x = stored(model, image(model))
    flat = model.node("Equal", [model.node("Size", ["x"]), model.constant(192, "int64")])
    y = choice(model, flat, x)
    around = OnnxBuilder()
    chosen = choice(around, "never", "product")
    around.nodes.insert(0, message(1, y) + message(1, y) + message(2, "product") + message(4, "Add"))
    around.output(chosen, "float32")
    other = OnnxBuilder()
    other.output(other.node("Identity", [x], ["same"]), "float32")
    model.constants += [tensor("never", np.array(False)), tensor("always", np.array(True))]
    z = model.node("If", ["always"], then_branch=around.graph(), else_branch=other.graph())
    model.output(stored(model, convolution(model, z)), "float32")
    return model.build()


def condition_in_a_function() -> bytes:
    """The model has a function with an `If`. Its branches read an input, a tensor and an attribute of the function, and
    one branch contains another `If`.
    """
    model, body, inner = OnnxBuilder(), OnnxBuilder(), OnnxBuilder()
    body.node("Neg", ["a"], ["negated"])
    inner.node("Add", ["a", "negated"], ["zero"])
    inner.node("LeakyRelu", ["a"], ["sloped"])
    inner.nodes[-1] += message(5, message(1, "alpha") + message(21, "slope") + number(20, 1))
    chosen = choice(inner, "flag", "sloped")
    inner.output(inner.node("Add", [chosen, "zero"], ["total"]), "float32")
    other = OnnxBuilder()
    other.output(other.node("Identity", ["negated"], ["same"]), "float32")
    body.node("If", ["flag"], ["b"], then_branch=inner.graph(), else_branch=other.graph())
    model.functions = [body.function("Chooses", ["a", "flag"], ["b"]) + message(6, "slope")]
    model.constants += [tensor("yes", np.array(True)), tensor("no", np.array(False))]
    x = model.node("Identity", [stored(model, image(model))], ["sloped"])  # a tensor of the branch has the same name
    for condition in ("yes", "no"):
        model.output(model.node("Chooses", [x, condition], domain="local", slope=0.25), "float32")
    return model.build()


def empty_constants() -> bytes:
    model = OnnxBuilder()
    x = model.input("x", "float32", [1, 1, 1])
    nothing = model.constant([], "int64")
    y = model.node("Squeeze", [model.node("Expand", [model.node("Unsqueeze", [x, nothing]), nothing]), nothing])
    model.output(model.node("Reshape", [model.node("Relu", [y]), nothing]), "float32")
    return model.build()


def constants_in_unusual_places() -> bytes:
    """The file has a sparse constant, two constants of one name, and one without a name. Another file has a graph in
    two parts.
    """
    model = OnnxBuilder()
    x = stored(model, image(model))
    sparse = (
        message(1, tensor("sparse", np.array([3.0], np.float32))) + message(2, tensor("", np.array([1]))) + number(3, 8)
    )
    model.constants += [tensor("twice", np.array([value], np.float32)) for value in (1.0, 2.0)]
    model.constants.append(tensor("", np.array([9.0], np.float32)))
    y = model.node("Add", [model.node("Mul", [x, "twice"]), "sparse"])
    model.output(stored(model, convolution(model, y)), "float32")
    return model.build() + message(7, message(15, sparse))


def scales_of_zero() -> bytes:
    """Scales of 0 occur for filters (with stored and real biases) and for a dense layer's columns. One scale is so
    small that the bias, in its steps, does not fit int32.
    """
    model = OnnxBuilder()
    steps = np.where(np.arange(4) % 2, STEPS, 0)
    steps[3] = 1e-12
    x, filters = stored(model, image(model)), model.constant(WEIGHTS, "int8")
    biases = (
        model.dequantized(model.constant([9, -900, 2000, 40], "int32"), steps * 0.05, [0] * 4, "int32", axis=0),
        model.constant([0.5, -0.25, 1.0, 0.75], "float32"),
    )
    for bias in biases:
        weights = model.dequantized(filters, steps, [0] * 4, "int8", axis=0)
        model.output(stored(model, model.node("Conv", [x, weights, bias])), "float32")
    columns = model.dequantized(model.constant(WEIGHTS.reshape(27, 4)[:8], "int8"), steps, [0] * 4, "int8", axis=1)
    model.output(stored(model, model.node("MatMul", [x, columns])), "float32")
    return model.build()


def scalars_behind_identities() -> bytes:
    """DynamicQuantizeLinear computes a scale and a zero point, which go through Identity."""
    model = OnnxBuilder()
    names = [model.name() for _ in range(3)]
    model.node("DynamicQuantizeLinear", [image(model)], names)
    for name, dtype in zip(names, ("uint8", "float32", "uint8"), strict=True):
        model.output(model.node("Identity", [name]), dtype)
    return model.build()


def masks() -> bytes:
    """The model uses both outputs of Dropout."""
    model = OnnxBuilder()
    kept, mask = model.name(), model.name()
    model.node("Dropout", [stored(model, image(model))], [kept, mask])
    model.output(kept, "float32")
    model.output(mask, "bool")
    return model.build()


def large_table_cast_by_hand() -> bytes:
    """Cast and Mul dequantize a constant that is too large to be computed while importing."""
    model = OnnxBuilder()
    rows = RNG.integers(-127, 128, (700, 100))
    real = model.node("Cast", [model.constant(rows, "int8")], to=1)
    table = model.node("Mul", [real, model.constant(RNG.uniform(0.001, 0.01, (700, 1)), "float32")])
    positions = model.node("Mod", [model.input("x", "int64", [1, 5]), model.constant(700, "int64")])
    model.output(model.node("Gather", [table, positions]), "float32")
    return model.build()


def weights_of_several_matrices() -> bytes:
    """The model has a MatMulInteger. Its sums are exact and are not scaled."""
    model = OnnxBuilder()
    model.input("x", "uint8", [1, 3, 8])
    operands = [model.constant(RNG.integers(-127, 128, (2, 8, 5)), "int8"), model.constant(9, "uint8")]
    model.output(model.node("MatMulInteger", ["x", *operands, model.constant(-3, "int8")]), "int32")
    model.output(model.node("MatMulInteger", ["x", model.constant(RNG.integers(-127, 128, 8), "int8")]), "int32")
    return model.build()


KINDS: dict[str, Callable[[], bytes]] = {
    "nodes out of order": unsorted,
    "a declared shape that differs": declared_otherwise,
    "a batch of -1": negative_batch,
    "no operator set of ONNX": only_microsofts_operators,
    "operator set 7": old_operators(7),
    "operator set 9": old_operators(9),
    "ends that depend on no input": ends_that_depend_on_no_input,
    "outputs without a type": outputs_without_a_type,
    "functions": functions,
    "conditions": conditions,
    "a condition in a function": condition_in_a_function,
    "constants without elements": empty_constants,
    "constants in unusual places": constants_in_unusual_places,
    "scales of 0": scales_of_zero,
    "a mask of Dropout": masks,
    "scalars behind Identity": scalars_behind_identities,
    "a large table that is cast": large_table_cast_by_hand,
    "weights of several matrices": weights_of_several_matrices,
}


@pytest.mark.parametrize("kind", KINDS)
def test_an_unusual_file_gives_the_values_of_onnx_runtime(kind: str, tmp_path: Path) -> None:
    for ours, theirs in outputs(KINDS[kind](), tmp_path):
        np.testing.assert_array_equal(ours, theirs)


def test_a_declared_shape_that_differs_is_noted() -> None:
    (notice,) = import_model(declared_otherwise()).notices
    assert "as [1, length], but its operators make [1, 4, 6, 6]" in notice


def test_a_condition_of_what_cannot_be_compiled_is_refused_by_that() -> None:
    model = OnnxBuilder()
    x = model.input("x", "float32", [4, 4])
    size = model.node("Size", [model.node("Unique", [x])])
    condition = model.node("Greater", [size, model.constant(0, "int64")])
    model.output(choice(model, condition, x), "float32")
    with pytest.raises(Unsupported, match="Unique #0"):
        import_model(model.build())


def test_functions_that_call_each_other_without_end_are_refused() -> None:
    model = OnnxBuilder()
    for name, other in (("F", "G"), ("G", "F")):
        body = OnnxBuilder()
        body.node(other, ["a"], ["b"], domain="local")
        model.functions.append(body.function(name, ["a"], ["b"]))
    model.output(model.node("F", [image(model)], domain="local"), "float32")
    with pytest.raises(Unsupported, match="calls itself"):
        import_model(model.build())


def test_functions_that_grow_without_bound_are_refused() -> None:
    model = OnnxBuilder()
    for level in range(40):
        body = OnnxBuilder()
        for _ in range(2 if level < 39 else 0):
            body.node(f"F{level + 1}", ["a"], [body.name()], domain="local")
        model.functions.append(body.function(f"F{level}", ["a"], ["b"]))
    x = image(model)
    model.node("F0", [x], ["unread"], domain="local")
    model.output(model.node("Relu", [x]), "float32")
    with pytest.raises(Unsupported, match="more than 50000 nodes"):
        import_model(model.build())
