"""Definitions of operators, patterns, passes and importers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import tvm

from octet import qnn
from octet.qnn import patterns as p
from service.compiler.importers.auto import import_model
from service.compiler.lowering.passes import pipeline
from service.compiler.qnn import oracle
from service.compiler.qnn.numerics import get_mode
from service.compiler.qnn.operation import IllTyped
from service.compiler.qnn.types import QuantizedType
from service.compiler.targets import OperandTypes
from service.core.builds.numerics import LITERT_REFERENCE, ONNXRUNTIME
from service.core.errors import InvalidInput, MalformedModel, OctetError
from service.core.models.arrays import Array
from tests.support.canonical import holds
from tests.support.onnx_builder import OnnxBuilder

INT8 = qnn.type("!quant.uniform<i8:f32, 0.5:3>")
EVERY_INT8 = np.arange(-128, 128).astype(np.int8).reshape(1, 256)


def halves() -> qnn.Operator:
    operator: qnn.Operator = qnn.Dialect("mine").real(name="half")(lambda x, *, factor=0.5: x * factor)
    return operator


def graph_of(shape: tuple[int, ...], dtype: str, build: Any) -> qnn.Module:
    with qnn.Graph() as graph:
        graph.output(y=graph.emit(build(graph, graph.input("x", shape, dtype)), "y"))
    return graph.module


class TestOperators:
    def test_a_formula_of_reals_has_a_real_and_a_stored_form(self) -> None:
        half = halves()
        real = graph_of((1, 4), "float32", lambda graph, x: half(x, factor=0.25))
        (found,) = real.evaluate(np.array([[1, 2, -4, np.inf]], np.float32), numerics=ONNXRUNTIME)
        assert found.tolist() == [[0.25, 0.5, -1, np.inf]]
        stored = graph_of((1, 256), "int8", lambda graph, x: half.stored(x, INT8, INT8))
        (found,) = stored.evaluate(EVERY_INT8, numerics=ONNXRUNTIME)
        expected = np.clip(np.rint((EVERY_INT8.astype(np.float32) - 3) * 0.5 * 0.5 / 0.5) + 3, -128, 127)
        assert found.tolist() == expected.tolist()

    def test_a_formula_of_integers_is_clamped(self) -> None:
        twice = qnn.Dialect("mine").integer(name="twice")(lambda q, in_type, out_type: q * 2)
        module = graph_of((1, 256), "int8", lambda graph, x: twice(x, in_type=INT8, out_type=INT8))
        (found,) = module.evaluate(EVERY_INT8, numerics=ONNXRUNTIME)
        assert found.tolist() == np.clip(EVERY_INT8.astype(int) * 2, -128, 127).tolist()

    @pytest.mark.parametrize("form", ["real", "stored", "of accumulators"])
    @pytest.mark.parametrize("steps", [1, 12])
    def test_generated_code_computes_as_the_oracle(self, form: str, steps: int) -> None:
        """TVM would need hours for 12 steps in one expression."""

        def repeated(x: Any, step: Any) -> Any:
            for _ in range(steps):
                x = step(x)
            return x

        mine, rng = qnn.Dialect("mine"), np.random.default_rng(0)
        channels = QuantizedType("int32", tuple(2.0**-each for each in range(4, 8)), (0, 0, 0, 0), axis=1)
        curve = mine.real(name="curve")(
            lambda x, *, factor=0.5: repeated(x, lambda x: x / (1 + abs(x * factor)) + x * x * 0.01)
        )
        shift = mine.integer(name="shift")(
            lambda q, in_type, out_type: repeated(
                qnn.divide_by_power(q, 4 - int(np.log2(in_type.scale))), lambda q: (q >> 1) + (q & 3) + (q ^ 5) - q
            )
        )
        x: Array = rng.integers(-20000, 20000, (64, 4)).astype(np.int32)
        build: Any = lambda graph, x: shift(x, in_type=channels, out_type=INT8)  # noqa: E731
        if form == "stored":
            build = lambda graph, x: curve.stored(x, channels, INT8)  # noqa: E731
        elif form == "real":
            x, build = rng.normal(0, 2, (64, 4)).astype(np.float32), lambda graph, x: curve(x)
        module = graph_of((64, 4), x.dtype.name, build)
        holds(module.ir, LITERT_REFERENCE, OperandTypes("uint8", "int8"), [x])

    def test_channels_with_other_operations_are_refused(self) -> None:
        channels = QuantizedType("int32", (0.25, 4.0), (0, 0), axis=1)
        branch = qnn.Dialect("mine").integer(name="branch")(
            lambda q, in_type, out_type: q if in_type.scale < 1 else q << 2
        )
        module = graph_of((1, 2), "int32", lambda graph, x: branch(x, in_type=channels, out_type=INT8))
        with pytest.raises(InvalidInput, match="other operations for some channels"):
            module.evaluate(np.zeros((1, 2), np.int32), numerics=ONNXRUNTIME)

    def test_the_text_of_a_module_is_read_back(self) -> None:
        half = halves()
        module = graph_of((1, 256), "int8", lambda graph, x: half.stored(x, INT8, INT8))
        assert "qnn.mine.half(%0) {in_type = !0, out_type = !0, factor = 0.5}" in module.text
        assert qnn.Module.parse(module.text).text == module.text

    @pytest.mark.parametrize(
        ("attributes", "message"),
        [
            ("{in_type = !0, out_type = !0}", "takes the attributes"),
            ("{in_type = !0, out_type = !0, factor = 0.5, more = 1}", "takes the attributes"),
            ("{in_type = !0, factor = 0.5}", "out_type"),
            ('{in_type = !0, out_type = !0, factor = "0.5"}', "factor must be a number of type float"),
            ("{in_type = !0, out_type = !0, factor = 1e999}", "number"),
            ("{in_type = 3, out_type = !0, factor = 0.5}", "in_type|3"),
        ],
    )
    def test_a_hostile_text_is_refused(self, attributes: str, message: str) -> None:
        halves()
        text = (
            "// qnn 1\n!0 = !quant.uniform<i8:f32, 0.5:3>\nmain\n"
            f'  %0: tensor<1x4xi8> loc("x")\n  %1 = qnn.mine.half(%0) {attributes} : tensor<1x4xi8> loc("y")\n'
            "  return %1\n"
        )
        with pytest.raises(OctetError, match=message):
            qnn.Module.parse(text)

    def test_a_check_decides_which_types_fit(self) -> None:
        def check(in_type: qnn.QuantizedType, out_type: qnn.QuantizedType) -> None:
            if in_type.scale != out_type.scale:
                raise ValueError("the scales differ")

        same = qnn.Dialect("mine").integer(name="same", check=check)(lambda q, in_type, out_type: q)
        graph_of((1, 4), "int8", lambda graph, x: same(x, in_type=INT8, out_type=INT8))
        other = qnn.type("!quant.uniform<i8:f32, 0.25>")
        with pytest.raises(IllTyped, match="the scales differ"):
            graph_of((1, 4), "int8", lambda graph, x: same(x, in_type=INT8, out_type=other))

    @pytest.mark.parametrize(
        ("use", "message"),
        [
            (lambda half, x: half(x, in_type=INT8, out_type=INT8), "takes real values: use half.stored"),
            (lambda half, x: half(x, size=3), "has no parameter size"),
            (lambda half, x: half(x, x), "operand"),
        ],
    )
    def test_a_wrong_call_is_refused(self, use: Any, message: str) -> None:
        half = halves()
        with pytest.raises(OctetError, match=message):
            graph_of((1, 4), "float32", lambda graph, x: use(half, x))

    @pytest.mark.parametrize("name", ["Mine", "1mine", "my-dialect", "relax", ""])
    def test_a_name_is_checked(self, name: str) -> None:
        with pytest.raises(InvalidInput, match="cannot be the name of a dialect"):
            qnn.Dialect(name)

    @pytest.mark.parametrize(
        ("formula", "message"),
        [
            (lambda *x: x[0], "a variable number of parameters"),
            (lambda x, *, size: x, "size of a formula needs a number as its default"),
            (lambda x, *, in_type=1: x, "in_type is not a name for a parameter"),
        ],
    )
    def test_a_signature_is_checked(self, formula: Any, message: str) -> None:
        with pytest.raises(InvalidInput, match=message):
            qnn.Dialect("mine").real(name="wrong")(formula)

    def test_attributes_of_an_onnx_operator_are_parameters(self) -> None:
        qnn.Dialect("mine").real(onnx="my.domain.Scaled", name="scaled")(lambda x, *, factor=0.5: x * factor)
        builder = OnnxBuilder()
        x = builder.input("x", "float32", [1, 4])
        builder.node("Scaled", [x], ["y"], domain="my.domain", factor=3.0)
        builder.output("y", "float32", [1, 4])
        module = import_model(with_domain(builder.build(), "my.domain")).module
        (found,) = oracle.run(module, get_mode(ONNXRUNTIME), [np.array([[1, 2, 3, 4]], np.float32)])
        assert found.tolist() == [[3, 6, 9, 12]]


class TestPatterns:
    def network(self) -> qnn.Module:
        return graph_of(
            (1, 256), "int8", lambda graph, x: qnn.requantize(graph.emit(qnn.requantize(x, INT8, INT8)), INT8, INT8)
        )

    def test_a_pattern_that_keeps_values_is_a_pass(self) -> None:
        mine, x = qnn.Dialect("mine"), p.wildcard()
        inner = p.is_op("relax.qnn.requantize")(x)

        @mine.pattern(p.is_op("relax.qnn.requantize")(inner), changes_values=False)
        def once(found: Any, parts: Mapping[Any, Any]) -> Any:
            return qnn.requantize(parts[x], qnn.type_of(parts[inner], "in_type"), qnn.type_of(found, "out_type"))

        names = [each.name for each in pipeline().passes]
        assert names[names.index("mine.once") + 1] == "decompose"
        before = self.network()
        after = before.run_passes("mine.once", numerics=LITERT_REFERENCE)
        assert (before.text.count("qnn.requantize"), after.text.count("qnn.requantize")) == (2, 1)
        assert after.evaluate(EVERY_INT8, numerics=LITERT_REFERENCE)[0].tolist() == EVERY_INT8.tolist()

    @pytest.mark.parametrize(
        ("made", "message"),
        [
            (lambda parts: 1 / 0, "the pattern mine.wrong failed: ZeroDivisionError"),
            (lambda parts: qnn.dequantize(operand(parts), INT8), "its replacement is R.Tensor.*float32.*int8"),
            (lambda parts: qnn.dequantize(qnn.dequantize(operand(parts), INT8), INT8), "the pattern mine.wrong failed"),
            (lambda parts: "text", "the pattern mine.wrong failed"),
        ],
    )
    def test_the_error_of_a_pattern_names_it(self, made: Any, message: str) -> None:
        pattern = p.is_op("relax.qnn.requantize")(p.wildcard())
        qnn.Dialect("mine").pattern(pattern, changes_values=False, name="wrong")(lambda found, parts: made(parts))
        with pytest.raises(OctetError, match=message):
            self.network().run_passes("mine.wrong", numerics=LITERT_REFERENCE)


def operand(parts: Mapping[Any, Any]) -> Any:
    """Returns the operand of the matched operator."""
    return next(each.args[0] for each in parts.values() if hasattr(each, "args"))


class TestPasses:
    def test_a_pass_runs_where_it_was_added(self) -> None:
        seen = []

        @qnn.Dialect("mine").graph_pass(before="drop-casts")
        def look(module: tvm.IRModule) -> tvm.IRModule:
            seen.append(module)
            return module

        names = [each.name for each in pipeline().passes]
        assert names[names.index("mine.look") + 1] == "drop-casts"
        module = graph_of((1, 256), "int8", lambda graph, x: qnn.requantize(x, INT8, INT8))
        module.run_passes("mine.look", numerics=LITERT_REFERENCE)
        assert len(seen) == 1

    def test_a_pass_before_an_unknown_one_is_refused(self) -> None:
        with pytest.raises(InvalidInput, match="a pass cannot run before 'link'"):
            qnn.Dialect("mine").graph_pass(before="link", name="late")(lambda module: module)

    def test_a_pass_must_return_a_module(self) -> None:
        qnn.Dialect("mine").graph_pass(before="decompose", name="nothing")(lambda module: None)
        module = graph_of((1, 256), "int8", lambda graph, x: qnn.requantize(x, INT8, INT8))
        with pytest.raises(InvalidInput, match=r"the pass mine\.nothing must return a module"):
            module.run_passes("mine.nothing", numerics=LITERT_REFERENCE)


class TestImporters:
    def add(self, read: Any, format: str = "mine", heads: tuple[bytes, ...] = (b"MINE",)) -> None:
        qnn.Dialect("mine").importer(format, heads=list(heads), numerics=LITERT_REFERENCE)(read)

    def test_a_file_is_recognized_by_its_head(self) -> None:
        def read(data: bytes, graph: qnn.Graph) -> None:
            graph.output(y=graph.emit(qnn.requantize(graph.input("x", (1, data[4]), "int8"), INT8, INT8)))

        self.add(read)
        imported = import_model(b"MINE\x07")
        assert imported.signature.inputs[0].shape == (1, 7)

    def test_any_error_of_an_importer_is_a_damaged_file(self) -> None:
        self.add(lambda data, graph: data[1000])
        with pytest.raises(MalformedModel, match="the importer of mine failed: IndexError"):
            import_model(b"MINE")

    def test_a_graph_without_outputs_is_refused(self) -> None:
        self.add(lambda data, graph: None)
        with pytest.raises(InvalidInput, match="at least one input and one output"):
            import_model(b"MINE")

    @pytest.mark.parametrize(
        ("format", "heads", "message"),
        [
            ("onnx", (b"MINE",), "Octet itself has a format onnx"),
            ("My format", (b"MINE",), "is not a name of a format"),
            ("mine", (), "must begin with"),
            ("mine", (b"",), "must begin with"),
        ],
    )
    def test_a_format_is_checked(self, format: str, heads: tuple[bytes, ...], message: str) -> None:
        with pytest.raises(InvalidInput, match=message):
            self.add(lambda data, graph: None, format, heads)


def with_domain(file: bytes, domain: str) -> bytes:
    """Adds an operator set of `domain` to an ONNX file."""
    from tests.support.onnx_builder import message, number

    return file + message(8, message(1, domain) + number(2, 1))
