"""Reads an archive into a `Program` (torch/_export/serde/schema.py, of PyTorch 2.8 and later: schema version 8)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from service.compiler.importers.archive import Archive
from service.compiler.importers.torch.exported import document
from service.compiler.importers.torch.exported.document import field, union
from service.compiler.importers.torch.exported.payloads import Payloads
from service.compiler.importers.torch.exported.program import Call, End, Operand, Program
from service.compiler.importers.torch.tensors import Tensor
from service.core.errors import Unsupported

_MOST_CALLS = 50_000
_MOST_OPERANDS = 1 << 16  # the operands of one call
_SCHEMA = 8
_NEWER = "load and save it again with PyTorch 2.8 or later: torch.export.save(torch.export.load(file), file)"
_KEYWORD = 2  # `ArgumentKind`
_TARGET = re.compile(r"torch\.ops\.(\w+)\.(\w+?)(?:\.\w+)?")
# Calls that only check shapes. Shapes are known here.
_CHECKS = ("aten::_assert_tensor_metadata", "aten::_assert_scalar", "aten::sym_constrain_range_for_size")
# The operator that reads a tensor inside a tensor subclass.
_INNER = "export::access_subclass_inner_tensor"
# Operators that turn a constant into a tensor.
_COPIES = ("aten::lift_fresh_copy", "aten::lift_fresh", "aten::detach")
# Other operators that compute nothing: their result is a view of their operand.
_VIEWS = frozenset(
    f"aten::{name}"
    for name in (
        *("chunk", "contiguous", "detach", "flatten", "permute", "reshape", "select", "slice", "split", "squeeze"),
        *("alias", "expand", "expand_as", "movedim", "narrow", "swapaxes", "t", "transpose", "unbind", "unflatten"),
        *("unsqueeze", "view", "view_as"),
    )
)
_STATE = {
    "parameter": "parameter_name",
    "buffer": "buffer_name",
    "tensor_constant": "tensor_constant_name",
}
_PLAIN: dict[str, Callable[[Any], Any]] = {
    "as_int": document.integer,
    "as_float": document.real,
    "as_scalar_type": document.dtype,
}
_ITEMS: dict[str, Callable[[Any], Any]] = {"as_ints": document.integer, "as_floats": document.real, "as_bools": bool}
# Arguments that describe the memory layout, which the compiler chooses.
_IGNORED = ("as_none", "as_memory_format", "as_layout", "as_device")


def read_program(archive: Archive) -> Program:
    """Returns the only program in `archive`.

    Raises:
        MalformedModel: the archive is damaged.
        Unsupported: the archive contains several programs, or the program changes its own state or has subgraphs.
    """
    names = [name for name in archive if name.startswith("models/") and name.endswith(".json")]
    if len(names) != 1:
        raise Unsupported(
            f"the archive contains {len(names)} exported programs, not one",
            hint="save one program with torch.export.save",
        )
    model = names[0].removeprefix("models/").removesuffix(".json")
    whole = document.load(archive, names[0])
    version = field(field(whole, "schema_version", dict), "major", int)
    if version != _SCHEMA:
        raise Unsupported(
            f"the exported program has schema version {version}, not {_SCHEMA}", hint="use PyTorch 2.8 or later"
        )
    return _Reader(field(whole, "graph_module", dict), Payloads(archive, model)).program()


class _Reader:
    def __init__(self, module: dict[str, Any], payloads: Payloads) -> None:
        self._graph, self._signature = field(module, "graph", dict), field(module, "signature", dict)
        self._payloads = payloads
        self._meta = field(self._graph, "tensor_values", dict)
        self._constants: dict[str, Tensor] = {}
        self._subclasses: dict[str, dict[str, Tensor]] = {}  # parameters, as the tensors that they consist of
        self._inputs: list[End] = []
        self._known: set[str] = set()
        self._renamed: dict[str, str] = {}  # a tensor that was changed in place -> the name of its new value
        self._viewed: dict[str, str] = {}  # a view -> the tensor that it is a view of, at the end of the chain
        self._stale: dict[str, str] = {}  # a tensor that a change in place of another view changed -> the operator

    def program(self) -> Program:
        for spec in field(self._signature, "input_specs", list):
            self._add_input(*union(spec))
        self._known |= {*self._constants, *self._subclasses, *(end.name for end in self._inputs)}
        calls = tuple(self._calls())
        outputs = tuple(self._output(*union(spec)) for spec in field(self._signature, "output_specs", list))
        shapes = {name: self._shape(name) for name in self._meta}
        return Program(calls, self._constants, shapes, tuple(self._inputs), outputs)

    def _add_input(self, kind: str, spec: Any) -> None:
        if kind == "user_input":
            name = _tensor_name(field(spec, "arg", dict), "an input")
            self._inputs.append(End(name, document.dtype(field(self._meta.get(name), "dtype", int)), self._shape(name)))
        elif kind in _STATE:
            name = field(field(spec, "arg", dict), "name", str)
            stored = field(spec, _STATE[kind], str)
            if self._payloads.is_subclass(stored):
                self._subclasses[name] = self._payloads.inner_tensors(stored)
            else:
                self._constants[name] = self._payloads.tensor(stored)
        elif kind != "constant_input":
            raise Unsupported(f"the exported program has the unsupported input {kind}")

    def _shape(self, name: str) -> tuple[int | None, ...]:
        return tuple(document.dimension(size) for size in field(self._meta.get(name), "sizes", list))

    def _output(self, kind: str, spec: Any) -> str:
        if kind != "user_output":
            raise Unsupported(
                f"the exported program has the unsupported output {kind}",
                hint="call model.eval() before it is exported",
            )
        name = self._now(_tensor_name(field(spec, "arg", dict), "an output"))
        self._check_current(name)
        if name not in self._known:
            document.malformed(f"returns {document.quoted(name)}, but no operator computes it")
        return name

    # -- operators

    def _calls(self) -> Iterator[Call]:
        nodes = field(self._graph, "nodes", list)
        if len(nodes) > _MOST_CALLS:
            raise Unsupported(f"the exported program has {len(nodes)} operators; the limit is {_MOST_CALLS}")
        for index, node in enumerate(nodes):
            op_type = _op_type(field(node, "target", str))
            if op_type in _CHECKS:
                continue
            call = self._call(index, op_type, node)
            if call.op_type == _INNER:
                self._constants[call.outputs[0]] = self._inner(call)
                continue
            if call.op_type in _COPIES and call.inputs[:1] and call.inputs[0] in self._constants:
                self._constants[call.outputs[0]] = self._constants[call.inputs[0]]
            else:
                yield call

    def _inner(self, call: Call) -> Tensor:
        """Returns a tensor inside a tensor subclass."""
        tensors = self._subclasses.get(call.inputs[0] if call.inputs else "", {})
        found = tensors.get(call.arguments[1]) if len(call.arguments) == 2 else None
        if found is None:
            document.malformed("reads a tensor that its tensor subclass does not contain")
        return found

    def _call(self, index: int, op_type: str, node: Any) -> Call:
        operands: list[str] = []
        arguments: list[Any] = []
        named: dict[str, Any] = {}
        for given in field(node, "inputs", list):
            value = self._argument(*union(field(given, "arg", dict)), operands)
            if given.get("kind") == _KEYWORD:
                named[field(given, "name", str)] = value
            else:
                arguments.append(value)
        outputs = tuple(name for output in field(node, "outputs", list) for name in _names(*union(output)))
        for name in outputs:
            if not name or name in self._known:
                document.malformed(f"computes {document.quoted(name)} twice, or without a name")
        if not outputs:
            raise Unsupported(
                f"{op_type} #{index} has no result, and an operator with an effect cannot be compiled", op=op_type
            )
        self._known |= set(outputs)
        op_type = self._in_place(op_type, operands, outputs[0])
        return Call(index, op_type, tuple(operands), outputs, {}, arguments=tuple(arguments), named=named)

    def _in_place(self, op_type: str, operands: list[str], output: str) -> str:
        """Returns the variant of the operator that does not change its operand in place. Later readers of the operand
        then read the output.
        """
        if op_type in _VIEWS:
            for source in operands[:1]:
                self._viewed[output] = self._viewed.get(source, source)
        if not op_type.endswith("_") or op_type.endswith("__"):
            return op_type
        for changed in operands[:1]:
            whole = self._viewed.get(changed, changed)
            others = {whole, *(name for name, of in self._viewed.items() if of == whole)} - {changed}
            self._stale |= dict.fromkeys(others, op_type)
        self._renamed |= dict.fromkeys(operands[:1], output)
        return op_type[:-1]

    def _check_current(self, name: str) -> None:
        if name in self._stale:
            op_type = self._stale[name]
            raise Unsupported(
                f"{op_type} changes a tensor in place, and {document.quoted(name)}, which shares its elements, is read "
                "afterwards",
                op=op_type,
                tensor=document.quoted(name),
                hint="save program.run_decompositions({}), which removes in-place changes",
            )

    def _now(self, name: str) -> str:
        while name in self._renamed:
            name = self._renamed[name]
        return name

    # -- arguments

    def _argument(self, kind: str, value: Any, operands: list[str]) -> Any:
        if kind in _IGNORED:
            return None
        if kind in _PLAIN:
            return _PLAIN[kind](value)
        if kind in ("as_bool", "as_string"):
            return field({kind: value}, kind, bool if kind == "as_bool" else str)
        if kind == "as_tensor":
            return self._operand(field(value, "name", str), operands)
        if kind in ("as_sym_int", "as_optional_tensor", "as_sym_float", "as_sym_bool"):
            return self._part(value, operands)
        if kind in ("as_tensors", "as_sym_ints", "as_optional_tensors"):
            return [self._part(each, operands) for each in field({kind: value}, kind, list)]
        if kind in ("as_ints", "as_floats", "as_bools"):
            return [_ITEMS[kind](each) for each in field({kind: value}, kind, list)]
        raise Unsupported(f"the exported program has an operator with an unsupported argument {document.quoted(kind)}")

    def _part(self, value: Any, operands: list[str]) -> Any:
        """Returns a name or a number, which may be in a union."""
        if isinstance(value, dict) and "name" in value:
            return self._operand(field(value, "name", str), operands)
        kind, found = union(value)
        if kind == "as_name":
            return self._operand(field(value, kind, str), operands)
        return self._argument(kind, found, operands)

    def _operand(self, name: str, operands: list[str]) -> Operand:
        name = self._now(name)
        if name not in self._known:
            document.malformed(f"reads {document.quoted(name)} before any operator computes it")
        self._check_current(name)
        operands.append(name)
        if len(operands) > _MOST_OPERANDS:
            raise Unsupported(
                f"the exported program has an operator with more than {_MOST_OPERANDS} operands, the last of which is "
                f"{document.quoted(name)}",
                tensor=document.quoted(name),
            )
        return Operand(len(operands) - 1)


def _op_type(target: str) -> str:
    """Returns the operator's name: `torch.ops.aten.conv2d.default` -> `aten::conv2d`. An operator of integers,
    `_operator.mul`, becomes `aten::mul`.
    """
    if target.startswith("_operator."):
        return f"aten::{target.removeprefix('_operator.')}"
    match = _TARGET.fullmatch(target)
    return f"{match[1]}::{match[2]}" if match else target[:100]


def _names(kind: str, value: Any) -> list[str]:
    """Returns the names of an operator's output."""
    if kind == "as_tensor":
        return [field(value, "name", str)]
    if kind == "as_tensors":
        return [field(each, "name", str) for each in field({kind: value}, kind, list)]
    if kind in ("as_sym_int", "as_sym_bool", "as_sym_float"):
        return [field(value, "as_name", str)]
    raise Unsupported(f"the exported program has an operator with an unsupported result {document.quoted(kind)}")


def _tensor_name(argument: Any, what: str) -> str:
    kind, value = union(argument)
    if kind != "as_tensor":
        raise Unsupported(
            f"{what} of the exported program is not a tensor, but {document.quoted(kind.removeprefix('as_'))}"
        )
    return field(value, "name", str)
