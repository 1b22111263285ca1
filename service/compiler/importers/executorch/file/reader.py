"""Reads a method of a verified program. Checks requirements of the format that the verifier cannot check."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from service.compiler.importers.executorch.file.program_schema import DTYPES, EXTERNAL, INLINE
from service.compiler.importers.executorch.file.segments import Segments, read_segments
from service.compiler.importers.executorch.program import (
    Delegate,
    Delegated,
    Instruction,
    Jump,
    Kernel,
    Listed,
    Move,
    Plan,
    Tensor,
)
from service.compiler.importers.flatbuffer.tables import Row
from service.compiler.importers.names import join_names, printable
from service.core.errors import MalformedModel, Unsupported
from service.core.models.arrays import Array

_MAIN = "forward"
_MOST_RANK, _MOST_ELEMENTS = 8, (1 << 31) - 1
_PLAIN = {"Int": ("signed", "int_val"), "Double": ("real", "double_val"), "String": ("text", "string_val")}
_LISTS = {"DoubleList": "float64", "BoolList": "bool"}
_STATIC = 0  # TensorShapeDynamism


def read_plan(data: bytes) -> Plan:
    """Returns the method `forward` of a program, or its only method. Constants are views of `data`.

    Raises:
        MalformedModel: the file is not well formed.
        Unsupported: the program has several methods and none of them is `forward`, or keeps its weights in another
            file.
    """
    file = read_segments(data)
    plans = file.root.tables("execution_plan")
    names = [plan.text("name") for plan in plans]
    if _MAIN not in names and len(plans) != 1:
        raise Unsupported(
            f"the program has the methods {join_names([printable(name) for name in names])}, and none is {_MAIN}",
            hint="export the model with one method",
        )
    chosen = names.index(_MAIN) if _MAIN in names else 0
    others = tuple(printable(name) for index, name in enumerate(names) if index != chosen)
    return _Reader(file, plans[chosen]).plan(others)


class _Reader:
    def __init__(self, file: Segments, row: Row) -> None:
        self._file, self._row = file, row
        self._constants = _constants(file)
        self._named = {
            each.text("key"): file.segment(each.unsigned("segment_index"), "named data")
            for each in file.root.tables("named_data")
        }

    def plan(self, others: tuple[str, ...]) -> Plan:
        values = tuple(self._value(row, index) for index, row in enumerate(self._row.tables("values")))
        self._values = _with_lists(values)
        operators = [each.text("name") for each in self._row.tables("operators")]
        chains = self._row.tables("chains")
        if len(chains) != 1:
            raise Unsupported(f"the program has {len(chains)} chains of instructions, not one")
        delegates = tuple(map(self._delegate, self._row.tables("delegates")))
        instructions = (
            self._instruction(each.table("instr_args"), operators, len(delegates), index)
            for index, each in enumerate(chains[0].tables("instructions"))
        )
        return Plan(
            printable(self._row.text("name")),
            self._values,
            self._indices(self._row, "inputs"),
            self._indices(self._row, "outputs"),
            tuple(each for each in instructions if each is not None),
            delegates,
            self._named,
            others,
        )

    # -- values

    def _value(self, row: Row, index: int) -> Any:
        value = row.table("val")
        if value is None or value.name == "Null":
            return None
        if value.name in _PLAIN:
            method, field = _PLAIN[value.name]
            return getattr(value, method)(field)
        if value.name == "Bool":
            return bool(value.unsigned("bool_val"))
        if value.name in _LISTS:
            return value.numbers("items", _LISTS[value.name]).tolist()
        if value.name == "IntList":  # the items are indices of values
            return _Indexed(tuple(value.numbers("items", "int64").tolist()))
        if value.name == "Tensor":
            return self._tensor(value, index)
        return Listed(tuple(value.numbers("items", "int32").tolist()))

    def _tensor(self, row: Row, index: int) -> Tensor:
        shape = tuple(int(size) for size in row.numbers("sizes", "int32"))
        order = tuple(int(axis) for axis in row.numbers("dim_order", "uint8"))
        rank, what = len(shape), f"tensor {index}"
        if rank > _MOST_RANK or min(shape, default=0) < 0 or math.prod(shape) > _MOST_ELEMENTS:
            raise MalformedModel(f"{what} has the shape {list(shape)[: _MOST_RANK + 1]}")
        if sorted(order) != list(range(rank)):
            raise MalformedModel(f"{what} has {rank} axes in the order {list(order)[: _MOST_RANK + 1]}")
        if row.signed("storage_offset"):
            raise Unsupported(f"{what} begins inside of another tensor, which cannot be compiled")
        dtype = DTYPES.get(row.signed("scalar_type"))
        data = self._data(row, dtype, shape, order, what)
        return Tensor(dtype, shape, row.signed("shape_dynamism") != _STATIC, data)

    def _data(
        self, row: Row, dtype: str | None, shape: tuple[int, ...], order: tuple[int, ...], what: str
    ) -> Array | None:
        extra, number = row.table("extra_tensor_info"), row.unsigned("data_buffer_idx")
        name = extra.text("fully_qualified_name") if extra is not None else ""
        if extra is not None and extra.unsigned("location") == EXTERNAL:
            if name not in self._named:
                raise external(name)
            stored, start = self._named[name], 0
        elif not number:
            return None
        elif row.table("allocation_info") is not None:
            shown = f" {printable(name)}" if name else ""
            raise Unsupported(
                f"{what}{shown} is a state with an initial value, which cannot be compiled",
                hint="export the model without buffers that it changes",
            )
        else:
            if number >= len(self._constants):
                raise MalformedModel(f"{what} refers to constant {number}; the file has {len(self._constants)}")
            stored, start = self._constants[number]
        if dtype is None:
            raise Unsupported(f"{what} is a constant of a type that cannot be compiled")
        element = np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
        part = self._file.part(stored, start, math.prod(shape) * element.itemsize, f"the constant of {what}")
        stored_shape = tuple(shape[axis] for axis in order)
        array = np.frombuffer(part, element).reshape(stored_shape)
        return array.transpose([order.index(axis) for axis in range(len(shape))]) if shape else array

    # -- instructions

    def _instruction(self, row: Row | None, operators: Sequence[str], delegates: int, index: int) -> Instruction | None:
        what = f"instruction #{index}"
        if row is None:
            raise MalformedModel(f"{what} is empty, or of an unknown type")
        if row.name == "KernelCall":
            number = row.signed("op_index")
            if not 0 <= number < len(operators):
                raise MalformedModel(f"{what} calls operator {number}; the program has {len(operators)}")
            return Kernel(printable(operators[number]), self._indices(row, "args"))
        if row.name == "DelegateCall":
            number = row.signed("delegate_index")
            if not 0 <= number < delegates:
                raise MalformedModel(f"{what} calls delegate {number}; the program has {delegates}")
            return Delegated(number, self._indices(row, "args"))
        if row.name == "MoveCall":
            return Move(*(self._index(row.signed(name)) for name in ("move_from", "move_to")))
        if row.name == "JumpFalseCall":
            return Jump(self._index(row.signed("cond_value_index")))
        return None  # FreeCall

    def _indices(self, row: Row, field: str) -> tuple[int, ...]:
        return tuple(self._index(int(each)) for each in row.numbers(field, "int32"))

    def _index(self, number: int) -> int:
        if not 0 <= number < len(self._values):
            raise MalformedModel(f"the program refers to value {number}; it has {len(self._values)}")
        return number

    def _delegate(self, row: Row) -> Delegate:
        name, reference = printable(row.text("id")), row.table("processed")
        if reference is None:
            raise MalformedModel(f"the delegate {name} has no data")
        number = reference.unsigned("index")
        if reference.unsigned("location") == INLINE:
            stored = self._file.root.tables("backend_delegate_data")
            if number >= len(stored):
                raise MalformedModel(f"the delegate {name} refers to data {number}; the file has {len(stored)}")
            return Delegate(name, stored[number].data("data"))
        return Delegate(name, self._file.segment(number, f"the data of the delegate {name}"))


class _Indexed(tuple[int, ...]):
    """A list of integers, as indices of the values that contain them."""


def _with_lists(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """Replaces the indices in lists of integers by the integers. An index is of a tensor if the model computes it."""

    def integer(number: int) -> int:
        found = values[number] if 0 <= number < len(values) else None
        if type(found) is not int:
            raise Unsupported(
                "the program has a list of integers that it computes, which cannot be compiled",
                hint="export the model with fixed shapes",
            )
        return found

    for each in values:
        for number in each.items if isinstance(each, Listed) else ():
            if number >= len(values):
                raise MalformedModel(f"a list refers to value {number}; the program has {len(values)}")
    return tuple([integer(number) for number in each] if isinstance(each, _Indexed) else each for each in values)


def _constants(file: Segments) -> list[tuple[memoryview, int]]:
    """Returns where each constant is stored: a part of the file, and a position in it."""
    inside = [(each.data("storage"), 0) for each in file.root.tables("constant_buffer")]
    row = file.root.table("constant_segment")
    offsets = row.numbers("offsets", "uint64").tolist() if row is not None else []
    if row is None or not offsets:
        return inside
    segment = file.segment(row.unsigned("segment_index"), "the constants")
    return [(segment, int(offset)) for offset in offsets]


def named_data(named: Mapping[str, memoryview], key: str) -> memoryview:
    """Returns data that the program names.

    Raises:
        Unsupported: it is in another file.
    """
    if key not in named:
        raise external(key)
    return named[key]


def external(name: str) -> Unsupported:
    return Unsupported(
        f"the program keeps {printable(name) or 'its weights'} in another file (.ptd)",
        hint="export the program with its weights inside: to_executorch(), without external constants",
    )
