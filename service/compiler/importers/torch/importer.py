"""Converts a TorchScript archive to a QNN module."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tvm import relax

from service.compiler.importers.archive import Archive
from service.compiler.importers.builder.module import At, Shapes, build_main, import_stage, param
from service.compiler.importers.detect import TORCHSCRIPT
from service.compiler.importers.imported import ImportedModel
from service.compiler.importers.torch.code import Code
from service.compiler.importers.torch.graph import Graph
from service.compiler.importers.torch.interpreter import Interpreter
from service.compiler.importers.torch.signature import input_specs, output_specs
from service.compiler.importers.torch.tensors import TensorReader
from service.compiler.importers.torch.values import Instance, Value
from service.compiler.qnn.graph import emit
from service.core.errors import MalformedModel, Unsupported
from service.core.models.signature import ModelSignature


def import_torchscript(data: bytes, at: At = lambda op, tensor: None, shapes: Shapes | None = None) -> ImportedModel:
    """Returns the model in a file that `torch.jit.save` wrote.

    Args:
        at: called before each operator is converted, with the operator and the variable that it computes.
        shapes: name of an input -> its shape. A traced model contains the shapes of its inputs.

    Raises:
        MalformedModel: the file is not well formed.
        Unsupported, UnsupportedOperator: the file is well formed, but cannot be compiled, or the shape of an input is
            unknown.
    """
    with import_stage():
        try:
            return _Import(Archive(data, in_folder=True), at, shapes or {}).run()
        except RecursionError as exc:
            raise MalformedModel("the archive's code is nested too deep") from exc


class _Import:
    def __init__(self, archive: Archive, at: At, shapes: Shapes) -> None:
        self.archive, self.shapes = archive, shapes
        self.reader, self.code = TensorReader(archive), Code(archive)
        self.builder = relax.BlockBuilder()
        self.graph = Graph(self.builder, at)
        constants = self.reader.read("constants.pkl") if "constants.pkl" in archive else ()
        if not isinstance(constants, tuple | list):
            raise MalformedModel("the constants of the archive are not a list")
        self.interpreter = Interpreter(self.code, list(constants), self.graph)

    def run(self) -> ImportedModel:
        # The function must be open before anything is emitted, because __setstate__ may call operators.
        root = self.reader.read("data.pkl")
        kind = str(getattr(root, "kind", ""))
        methods = self.code.methods(kind) if kind else None
        if methods is None or "forward" not in methods:
            raise Unsupported(
                "the archive contains no module with a forward method",
                hint="save the whole model: torch.jit.save(torch.jit.trace(model, example), file)",
            )
        names = [parameter.arg for parameter in methods["forward"].args.args[1:]]
        optional = len(methods["forward"].args.defaults)
        specs = input_specs(names, optional, self.shapes, self._traced())
        params = [param(f"input_{index}", spec.shape, spec.dtype.name) for index, spec in enumerate(specs)]
        results: list[tuple[str | None, Value]] = []

        def convert() -> Iterator[relax.Expr]:
            instance = self.interpreter.instance(root)
            assert isinstance(instance, Instance)
            result = self.interpreter.call_method(instance, "forward", [Value(each) for each in params])
            self.graph.check()
            results.extend(outputs_of(result))
            return (computed(self.builder, value, params) for _, value in results)

        build_main(self.builder, params, convert)
        signature = ModelSignature(tuple(specs), output_specs(results))
        return ImportedModel(self.builder.get(), signature, TORCHSCRIPT)

    def _traced(self) -> Sequence[Any]:
        """If `forward` was traced, returns the example inputs of the trace."""
        if "traced_inputs.pkl" not in self.archive:
            return ()
        traced = self.reader.read_specs("traced_inputs.pkl")
        inputs = traced.get("forward") if isinstance(traced, dict) else None
        return inputs if isinstance(inputs, list) else ()


def computed(builder: relax.BlockBuilder, value: Value, params: Sequence[relax.Var]) -> relax.Expr:
    """Returns an output's expression.

    Raises:
        Unsupported: the output is an input of the model.
    """
    if any(value.expr.same_as(param) for param in params):
        raise Unsupported("an output of the model is one of its inputs, unchanged")
    return emit(builder, value.expr, "output")


def outputs_of(result: Any) -> list[tuple[str | None, Value]]:
    """Returns the tensors that a model returns. Tensors in a dictionary have names.

    Raises:
        Unsupported: the model returns something else.
    """
    if isinstance(result, Value):
        return [(None, result)]
    named: list[tuple[Any, Any]] = []
    if isinstance(result, Mapping):
        named = list(result.items())
    elif isinstance(result, tuple | list):
        named = [(None, part) for part in result]
    if not named or not all(isinstance(part, Value) for _, part in named):
        what = "nothing" if result is None else "values that are not tensors"
        raise Unsupported(f"the model returns {what}", hint="return a tensor, or a tuple or dictionary of tensors")
    return [(None if name is None else str(name), part) for name, part in named]
