"""Unusual files that ONNX Runtime loads: each is built and gives ONNX Runtime's values."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from service.compiler.importers.onnx.importer import import_model
from service.core.errors import Unsupported
from service.core.numerics import ONNXRUNTIME
from service.core.vectors import sample_inputs
from tests.support.compiling import compiled
from tests.support.onnx_builder import OnnxBuilder, message, number, tensor
from tests.support.onnx_reference import Reference

RNG = np.random.default_rng(7)
WEIGHTS = RNG.integers(-127, 128, (4, 3, 3, 3))
STEPS = RNG.uniform(0.001, 0.01, 4)
SAMPLES = 6


def image(model: OnnxBuilder) -> str:
    return model.input("x", "float32", [1, 3, 8, 8])


def stored(model: OnnxBuilder, x: str, scale: float = 0.05, point: int = 100) -> str:
    """`x`, quantized and dequantized."""
    return model.dequantized(model.quantized(x, scale, point, "uint8"), scale, point, "uint8")


def convolution(model: OnnxBuilder, x: str) -> str:
    weights = model.dequantized(model.constant(WEIGHTS, "int8"), STEPS, [0] * 4, "int8", axis=0)
    return model.node("Conv", [x, weights])


def unsorted() -> bytes:
    model = OnnxBuilder()
    model.output(stored(model, convolution(model, stored(model, image(model)))), "float32")
    model.nodes = [model.nodes[place] for place in RNG.permutation(len(model.nodes))]
    return model.build()


def declared_otherwise() -> bytes:
    """The output of another rank, and a tensor inside of another shape."""
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
    """Slice, TopK and Upsample had attributes that are inputs now."""

    def build() -> bytes:
        model = OnnxBuilder()
        part = model.node("Slice", [image(model)], starts=[0, 1], ends=[9, 1 << 40], axes=[1, 2])
        scales = [1.0, 1.0, 2.0, 2.0]
        if opset < 9:
            larger = model.node("Upsample", [part], scales=scales, mode="nearest")
        else:
            larger = model.node("Upsample", [part, model.constant(scales, "float32")], mode="nearest")
        values, places = model.name(), model.name()
        model.node("TopK", [model.node("Softmax", [larger], axis=2)], [values, places], k=3, axis=3)
        model.output(model.node("Relu", [larger]), "float32")
        model.output(places, "int64")
        return model.build(opset)

    return build


def ends_that_depend_on_no_input() -> bytes:
    """The input, a constant, a shape, a dequantized constant; and one tensor twice."""
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
    """A function that quantizes, called by another one with an attribute; both called twice."""
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
    """A branch of an `If` that reads a tensor of the graph around it, and has names that another one has, too."""
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
    """`If`s that a constant decides, a shape, and an `If` around one."""
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


def empty_constants() -> bytes:
    model = OnnxBuilder()
    x = model.input("x", "float32", [1, 1, 1])
    nothing = model.constant([], "int64")
    y = model.node("Squeeze", [model.node("Expand", [model.node("Unsqueeze", [x, nothing]), nothing]), nothing])
    model.output(model.node("Reshape", [model.node("Relu", [y]), nothing]), "float32")
    return model.build()


def constants_in_unusual_places() -> bytes:
    """A sparse one, two of the same name, one without a name, and one in a file that has its graph in two parts."""
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
    "constants without elements": empty_constants,
    "constants in unusual places": constants_in_unusual_places,
}


@pytest.mark.parametrize("kind", KINDS)
def test_an_unusual_file_gives_the_values_of_onnx_runtime(kind: str, tmp_path: Path) -> None:
    data = KINDS[kind]()
    source = tmp_path / "model.onnx"
    source.write_bytes(data)
    model, reference = compiled(source, ONNXRUNTIME, tmp_path), Reference(data, optimized=True)
    for sample in sample_inputs(model.signature, SAMPLES, seed=1):
        for ours, theirs in zip(model.run(sample), reference(sample), strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_a_declared_shape_that_differs_is_noted() -> None:
    (notice,) = import_model(declared_otherwise()).notices
    assert "as [1, length], but its operators make [1, 4, 6, 6]" in notice


def test_a_condition_that_is_computed_at_run_time_is_refused_with_its_tensor() -> None:
    model = OnnxBuilder()
    x = model.input("x", "float32", [1])
    condition = model.node("Greater", [x, model.constant(0.0, "float32")], ["positive"])
    model.output(choice(model, condition, x), "float32")
    with pytest.raises(Unsupported, match="If #1 chooses between its branches by positive, which is computed at run"):
        import_model(model.build())


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
