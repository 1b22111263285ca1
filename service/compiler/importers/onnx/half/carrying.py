"""Rewrites a graph with 16-bit real values to float32, with roundings where ONNX Runtime rounds.

ONNX Runtime's CPU provider computes an operator that has no float16 kernel in float32 (`InsertCastTransformer` in
core/optimizer/insert_cast_transformer.cc). It inserts casts before and after each such operator, and then removes casts
that cancel each other (`RemoveDuplicateCastTransformer`). So a value between two such operators is not rounded to
float16. If an operator with a float16 kernel is between such operators only, it computes in float32 too
(`IsIsolatedFp16NodeOnCpu`). The operators that are defined by functions are expanded first.

Not followed: the optimizer also moves and removes Transposes, and merges Reshapes, before it inserts casts. A value can
then be rounded here, but not there, or the other way round. bfloat16 has no inserted casts: each operator rounds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tvm import relax

from service.compiler.importers.onnx.file.branches import LOOP, branch_of, own_inputs
from service.compiler.importers.onnx.file.tensors import SMALL_REALS
from service.compiler.importers.onnx.half.functions import expanded
from service.compiler.importers.onnx.half.kernels import MOVES_ITEMS, has_kernel, is_exact
from service.compiler.importers.onnx.half.merging import merge_into_convolutions, merge_into_gemms
from service.compiler.importers.onnx.half.shapes import static_shapes, types_of
from service.compiler.importers.onnx.half.types import CARRIED, FLOAT16, NUMBERS, TYPE_ATTRIBUTES, output_types, widened
from service.compiler.importers.onnx.model import BY_SCALE, ROUND, TIMES_SCALE, Branch, End, Model, Tensor
from service.compiler.importers.qdq import Operator

_FLOAT = NUMBERS["float32"]
_CASTS = ("Cast", "CastLike")
# Types that a cast to float16 and back leaves unchanged, as `UnsafeCast` in insert_cast_transformer.cc decides.
_NARROW = ("bool", "int8", "uint8")


def carry_halves(model: Model, params: Sequence[relax.Var]) -> Model:
    """Returns `model` with all 16-bit real values carried as float32. Only the model's inputs and outputs keep their
    types; Casts convert them.

    Requires: a graph that `graph.check_graph` accepts. `params` are the graph's inputs.
    Ensures: a graph that `check_graph` would accept, with the same inputs and outputs.
    """
    model = merge_into_convolutions(model)
    types = types_of(model)
    if any(each.op_type == "MatMul" and types.get(each.outputs[0]) == FLOAT16 for each in model.operators):
        model = merge_into_gemms(model, types, static_shapes(model, params))
    return _carried(model)


def _carried(model: Model) -> Model:
    types = {end.name: end.dtype for end in model.inputs}
    body = _Body(model.opset, model.operators, model.constants, [end.name for end in model.outputs], types)
    if not body.has_halves:
        return model
    inputs = [end for end in model.inputs if end.dtype in CARRIED]
    widened = [_cast(end.name, body.internal(end.name), "float32") for end in inputs]
    operators = body.carried()
    narrowed = [_cast(body.internal(name), name, body.types[name]) for name in body.narrowed_ends(model.inputs)]
    return replace(model, operators=(*widened, *operators, *narrowed), constants=body.constants)


def _cast(source: str, output: str, dtype: str) -> Operator:
    return Operator(0, "Cast", (source,), (output,), {"to": NUMBERS[dtype]})


class _Body:
    """The operators of a graph or of a branch.

    Args:
        ends: the names of its outputs.
        given: the types of the tensors that it reads from outside.
        outside: for a branch, the names of float32 tensors with the values of these tensors. None for a graph.

    Attributes:
        types: the type of each tensor, by name.
        constants: the constants, with 16-bit real values as float32.
    """

    def __init__(
        self,
        opset: int,
        operators: tuple[Operator, ...],
        constants: Mapping[str, Tensor],
        ends: list[str],
        given: Mapping[str, str],
        outside: Mapping[str, str] | None = None,
    ) -> None:
        self._opset, self._outside = opset, outside
        self._branches: dict[int, _Body] = {}
        self._names: dict[tuple[str, str], str] = {}
        self._used = {name for operator in operators for name in (*operator.inputs, *operator.outputs)} | {*constants}
        self.types = {**given, **{name: tensor.dtype for name, tensor in constants.items()}}
        self.constants = dict(constants)
        self._given, self._ends = given, ends
        self._operators: list[Operator] = []
        for operator in operators:
            self._append(operator)
        self.has_halves: bool = any(dtype in CARRIED for dtype in self.types.values()) or any(
            isinstance(value, Branch) and self._inner(value, operator).has_halves
            for operator in operators
            for value in operator.attributes.values()
        )
        self.constants = {name: widened(tensor) for name, tensor in self.constants.items()}
        self._producers = {name: operator for operator in self._operators for name in operator.outputs if name}
        self._readers: dict[str, list[Operator]] = {}
        for operator in self._operators:
            for name in dict.fromkeys(operator.inputs):
                self._readers.setdefault(name, []).append(operator)
        self._used |= {*self.types, *self._readers}
        self._in_float32 = {id(operator) for operator in self._operators if self._lacks_kernel(operator)}
        self._in_float32 |= {id(operator) for operator in self._operators if self._is_isolated(operator)}

    # -- names

    def internal(self, name: str) -> str:
        """Returns the name of the float32 tensor with the values of the 16-bit tensor `name`. It differs from `name` if
        the model's input or output has this name.
        """
        if self._outside is not None:
            return self._outside.get(name, name)
        is_end = name in self._ends or (name in self._given and name not in self.constants)
        return self._variant(name, "float32") if is_end and self._is_half(name) else name

    def narrowed_ends(self, inputs: tuple[End, ...]) -> list[str]:
        """Returns the names of the outputs that are converted to 16 bits. An output that is an input stays as it is."""
        given = {end.name for end in inputs}
        return [name for name in dict.fromkeys(self._ends) if self._is_half(name) and name not in given]

    def _unrounded(self, name: str) -> str:
        return self._variant(name, "unrounded")

    def _variant(self, name: str, what: str) -> str:
        if (name, what) not in self._names:
            variant = f"{name}/{what}"
            while variant in self._used:
                variant += "'"
            self._used.add(variant)
            self._names[name, what] = variant
        return self._names[name, what]

    # -- the operators, and which of them compute in float32

    def _append(self, operator: Operator) -> None:
        is_float16 = self.types.get(operator.inputs[0] if operator.inputs else "") == FLOAT16
        body = expanded(operator, self._opset) if is_float16 else None
        if body is not None:
            self.constants |= body.constants
            self.types |= dict.fromkeys(body.constants, FLOAT16)  # they count as operands of float16
        for each in body.operators if body is not None else (operator,):
            self._operators.append(each)
            self.types |= zip(each.outputs, self._output_types(each), strict=False)

    def _output_types(self, operator: Operator) -> tuple[str, ...]:
        for value in operator.attributes.values():
            if isinstance(value, Branch):
                inner = self._inner(value, operator)
                types = [inner.types.get(name, "") for name in value.outputs]
                return tuple(types[1:] if operator.op_type == LOOP else types)  # a Loop's first is its condition
        return output_types(operator, self.types)

    def _inner(self, branch: Branch, operator: Operator) -> _Body:
        if id(branch) not in self._branches:
            types = {name: self.types[name] for name in branch.captures if name in self.types}
            given = [self.types.get(name, "") for name in own_inputs(operator)]
            if operator.op_type == LOOP:
                given[:2] = ["int64", "bool"]  # the iteration and the condition
            types |= zip(branch.inputs, given, strict=False)
            names = {name: self.internal(name) for name in branch.captures}
            self._branches[id(branch)] = _Body(
                self._opset, branch.operators, branch.constants, list(branch.outputs), types, names
            )
        return self._branches[id(branch)]

    def _is_half(self, name: str) -> bool:
        return self.types.get(name, "") in CARRIED

    def _halves(self, names: tuple[str, ...]) -> list[str]:
        return [name for name in names if self.types.get(name) == FLOAT16]

    def _lacks_kernel(self, operator: Operator) -> bool:
        is_moved = operator.op_type in MOVES_ITEMS or _is_cast(operator)
        return bool(self._halves(operator.inputs)) and not has_kernel(operator, self._opset) and not is_moved

    def _is_isolated(self, operator: Operator) -> bool:
        """Returns true if all operators next to `operator` compute in float32, so that it does so too."""
        written, halves = self._halves(operator.outputs), self._halves(operator.inputs)
        has_edge = any(name in self._producers for name in operator.inputs)
        has_branch = any(isinstance(value, Branch) for value in operator.attributes.values())
        if not written or not halves or not has_edge or has_branch or _is_cast(operator):
            return False
        if not set(self._ends).isdisjoint(operator.outputs) or self._lacks_kernel(operator):
            return False
        # For an operator with any number of inputs, such as Concat, ONNX Runtime looks at the first one only.
        read = halves[:1] if operator.op_type in ("Concat", "Max", "Min") else halves
        makers = [self._producers[name] for name in read if name in self._producers]
        readers = [reader for name in written for reader in self._readers.get(name, ())]
        return all(map(self._lacks_kernel, [*makers, *readers]))

    # -- the rewritten operators

    def carried(self) -> list[Operator]:
        """Returns the operators on float32."""
        return _needed([each for operator in self._operators for each in self._carried(operator)], self._read_names())

    def _read_names(self) -> set[str]:
        return {self.internal(name) for name in self._ends}

    def _carried(self, operator: Operator) -> list[Operator]:
        if _is_cast(operator) and len(operator.inputs) >= 1 and len(operator.outputs) == 1:
            return self._carried_cast(operator)
        operator = self._scaling(operator)
        in_float32 = id(operator) in self._in_float32
        inputs = tuple(self._float32_name(name) if in_float32 else self.internal(name) for name in operator.inputs)
        rounds = in_float32 or not is_exact(operator)
        outputs = tuple(
            self._unrounded(name) if rounds and self._is_half(name) else self.internal(name)
            for name in operator.outputs
        )
        attributes = {key: self._attribute(operator, key, value) for key, value in operator.attributes.items()}
        changed = replace(operator, inputs=inputs, outputs=outputs, attributes=attributes)
        rounded = [
            self._rounding(operator, self._unrounded(name), name)
            for name in operator.outputs
            if rounds and self._is_half(name)
        ]
        return [changed, *rounded]

    def _scaling(self, operator: Operator) -> Operator:
        """Returns a conversion to or from a small real type as a quotient or a product. Other operators are returned
        unchanged.
        """
        stored = {"QuantizeLinear": operator.outputs[:1], "DequantizeLinear": operator.inputs[:1]}
        if not any(self.types.get(name) in SMALL_REALS for name in stored.get(operator.op_type, ())):
            return operator
        kind = BY_SCALE if operator.op_type == "QuantizeLinear" else TIMES_SCALE
        return replace(operator, op_type=kind, inputs=operator.inputs[:2])

    def _attribute(self, operator: Operator, key: str, value: object) -> object:
        if isinstance(value, Branch):
            return self._branch(value, operator)
        is_half = key in TYPE_ATTRIBUTES and value in [NUMBERS[dtype] for dtype in CARRIED]
        return _FLOAT if is_half else widened(value)

    def _branch(self, branch: Branch, operator: Operator) -> Branch:
        inner = self._inner(branch, operator)
        ends = [inner.internal(name) for name in branch.outputs]
        return branch_of(inner.carried(), inner.constants, ends, branch.inputs)

    def _rounding(self, operator: Operator, source: str, name: str) -> Operator:
        attributes = {"to": NUMBERS[self.types[name]], "saturate": operator.attributes.get("saturate", 1)}
        return Operator(operator.index, ROUND, (source,), (self.internal(name),), attributes, written=operator.written)

    def _float32_name(self, name: str) -> str:
        """Returns the tensor that an operator in float32 reads for `name`: not rounded, if casts cancel."""
        maker = self._producers.get(name)
        if self.types.get(name) != FLOAT16 or maker is None:
            return self.internal(name)
        if id(maker) in self._in_float32:
            return self._unrounded(name)
        source = self._source_of_cast(maker, name)
        return self.internal(name) if source is None else source

    def _source_of_cast(self, cast: Operator, name: str) -> str | None:
        """Returns the float32 operand of a Cast to float16 that is skipped, or None."""
        if not _is_cast(cast) or not cast.inputs or self.types.get(cast.inputs[0]) != "float32":
            return None
        others = [self.types.get(reader.outputs[0]) for reader in self._readers.get(name, ()) if _is_cast(reader)]
        return cast.inputs[0] if all(dtype in _NARROW for dtype in others) else None

    def _carried_cast(self, operator: Operator) -> list[Operator]:
        name, output = operator.inputs[0], operator.outputs[0]
        given, dtype = self.types.get(name, ""), self.types.get(output, "")
        if not dtype or not (self._is_half(name) or self._is_half(output)):
            return [operator]
        source = self._cast_operand(name, output)
        if not self._is_half(output):
            if dtype == "float32":
                return [replace(operator, op_type="Identity", inputs=(source,), attributes={})]
            return [replace(operator, op_type="Cast", inputs=(source,), attributes={"to": NUMBERS[dtype]})]
        if given in (*CARRIED, "float32"):
            return [self._rounding(operator, source, output)]
        real = self._unrounded(output)
        widened = replace(operator, op_type="Cast", inputs=(source,), outputs=(real,), attributes={"to": _FLOAT})
        return [widened, self._rounding(operator, real, output)]

    def _cast_operand(self, name: str, output: str) -> str:
        """Returns the tensor that a Cast of the file reads."""
        maker = self._producers.get(name)
        if maker is None or id(maker) not in self._in_float32:
            return self.internal(name)
        cancels = self.types[output] == "float32" and output not in self._ends
        only_casts = all(_is_cast(each) or id(each) in self._in_float32 for each in self._readers[name])
        return self._unrounded(name) if cancels or (only_casts and name not in self._ends) else self.internal(name)


def _is_cast(operator: Operator) -> bool:
    return operator.op_type in _CASTS


def _needed(operators: list[Operator], read: set[str]) -> list[Operator]:
    """Returns `operators` without Rounds that nothing reads."""
    kept: list[Operator] = []
    for operator in reversed(operators):
        if operator.op_type == ROUND and read.isdisjoint(operator.outputs):
            continue
        kept.append(operator)
        read.update(operator.inputs)
        for value in operator.attributes.values():
            if isinstance(value, Branch):
                read.update(value.captures)
    return kept[::-1]
