"""Finds the states that a model keeps between calls, before its operators are converted.

There are two types. A variable tensor is changed in place by its operator (the hidden and cell state of an LSTM, the
history of an SVDF) and starts at its zero point. A resource variable has a handle from VAR_HANDLE, is read by
READ_VARIABLE and written by ASSIGN_VARIABLE (tflite/kernels/{var_handle,read_variable,assign_variable}.cc). Before the
first call, CALL_ONCE runs a subgraph that assigns the variable's initial value. These operators compute nothing:
reading a variable gives the tensor that was last assigned to the variable, in this call or an earlier call.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from service.compiler.importers.tflite.model import Model, Operator, State, Subgraph, Tensor, called_by
from service.core.errors import MalformedModel, Unsupported
from service.core.models.arrays import Array

Name = tuple[str, str]  # container and name; the kernels identify variables by these

_MOST_BYTES = 16 << 20  # limit of a variable that is changed in place
_HANDLE, _READ, _ASSIGN, _ONCE = "VAR_HANDLE", "READ_VARIABLE", "ASSIGN_VARIABLE", "CALL_ONCE"
# Operator -> its smallest number of inputs, and its number of outputs.
_ARITY = {_HANDLE: (0, 1), _READ: (1, 1), _ASSIGN: (2, 0), _ONCE: (0, 0)}


def find_states(model: Model) -> Model:
    """Returns `model` with its `states`, and without the operators on resource variables.

    Raises:
        MalformedModel: a variable is read before it has a value, or an operator on one is invalid.
        Unsupported: a variable's initial value is not a constant.
    """
    resources = _Resources(model).run()
    read = {index for operator in resources.operators for index in operator.inputs} - set(model.inputs)
    kept = tuple(
        State("", tensor.index, tensor.index, _zero_point(tensor))
        for tensor in resources.tensors
        if tensor.is_variable and tensor.index in read and not tensor.is_constant and tensor.oddity is None
    )
    return replace(resources, states=(*kept, *resources.states))


def _zero_point(tensor: Tensor) -> Array:
    """Returns the initial elements of a variable, as `ResetVariableTensor` of tflite/core/subgraph.cc sets them: int8
    starts at its zero point, and everything else at zero.

    The size is limited, because a few bytes of a file can declare any size, and every sequence needs this much memory.
    """
    if math.prod(tensor.shape) * np.dtype(tensor.dtype).itemsize > _MOST_BYTES:
        raise Unsupported(
            f"the variable {tensor.label} of shape {list(tensor.shape)} is larger than {_MOST_BYTES >> 20} MiB",
            tensor=tensor.label,
        )
    point = tensor.quantization.zero_points[0] if tensor.quantization and tensor.dtype == "int8" else 0
    if not -128 <= point <= 127:
        raise MalformedModel(
            f"the variable {tensor.label} has the zero point {point}, but is int8", tensor=tensor.label
        )
    return np.full(tensor.shape, point, tensor.dtype)


class _Resources:
    """Tracks the value of each variable through the operators, in their order."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._tensors = list(model.tensors)
        self._handles: dict[int, Name] = {}
        self._first: dict[Name, Array] = {}
        self._found: dict[Name, int] = {}  # the tensor with the value from the call before
        self._last: dict[Name, int] = {}  # the tensor that was assigned last
        self._same: dict[int, int] = {}  # the output of a read -> the tensor that has the same value

    def run(self) -> Model:
        operators = []
        for operator in self._model.operators:
            if operator.name not in _ARITY:
                operators.append(
                    replace(operator, inputs=tuple(self._same.get(each, each) for each in operator.inputs))
                )
                continue
            _check(operator)
            if operator.name == _ONCE:
                self._initialize(operator)
            elif operator.name == _HANDLE:
                self._handles[operator.outputs[0]] = _name(operator)
            elif operator.name == _READ:
                self._read(operator, operator.outputs[0])
            else:
                value = operator.inputs[1]
                self._last[self._variable(operator)] = self._same.get(value, value)
        states = tuple(self._states())
        return replace(
            self._model,
            tensors=tuple(self._tensors),
            operators=tuple(operators),
            outputs=tuple(self._same.get(each, each) for each in self._model.outputs),
            states=states,
        )

    def _initialize(self, operator: Operator) -> None:
        (number,) = called_by(operator)  # the reader refuses subgraphs that do not exist
        self._first.update(_assigned(self._model.subgraphs[number]))

    def _variable(self, operator: Operator) -> Name:
        if operator.inputs[0] not in self._handles:
            raise MalformedModel(f"{operator.label} reads a value that is not a variable's handle", op=operator.label)
        return self._handles[operator.inputs[0]]

    def _read(self, operator: Operator, made: int) -> None:
        name = self._variable(operator)
        if name in self._last:
            self._same[made] = self._last[name]
        elif name in self._found:
            self._same[made] = self._found[name]
        elif name in self._first:
            first, tensor = self._first[name], self._tensors[made]
            if tensor.dtype != first.dtype.name or len(tensor.shape) not in (0, first.ndim):
                raise MalformedModel(
                    f"{operator.label} reads {tensor.dtype} {list(tensor.shape)} from the variable {name[1]}, which is "
                    f"{first.dtype.name} {list(first.shape)}",
                    op=operator.label,
                    tensor=tensor.label,
                )
            self._tensors[made] = replace(tensor, shape=first.shape, signature=(), oddity=None)
            self._found[name] = made
        else:
            raise MalformedModel(
                f"{operator.label} reads the variable {name[1]} before it has a value",
                op=operator.label,
                tensor=self._tensors[made].label,
            )

    def _states(self) -> Iterator[State]:
        """Returns the states, which are the variables that are written. A variable that is only read is a constant; one
        that is never read is omitted.
        """
        for name, tensor in self._found.items():
            first = self._first[name]
            if name in self._last:
                yield State(name[1], tensor, self._last[name], first)
            else:
                # -1 - tensor is not the number of a buffer of the file
                self._tensors[tensor] = replace(self._tensors[tensor], data=first, storage=-1 - tensor)


def _assigned(graph: Subgraph) -> Mapping[Name, Array]:
    """Returns the values that an initializing subgraph assigns to the variables."""
    handles: dict[int, Name] = {}
    values: dict[Name, Array] = {}
    for operator in graph.operators:
        if operator.name not in (_HANDLE, _ASSIGN):
            raise Unsupported(
                f"{operator.label} computes a variable's first value, which must be constant",
                op=operator.label,
                hint="initialize the model's variables with constants",
            )
        _check(operator)
        if operator.name == _HANDLE:
            handles[operator.outputs[0]] = _name(operator)
            continue
        handle, value = operator.inputs[:2]
        tensor = graph.tensors[value]
        if handle not in handles or tensor.data is None:
            raise Unsupported(
                f"{operator.label} does not assign a constant to a variable",
                op=operator.label,
                tensor=tensor.label,
            )
        values[handles[handle]] = tensor.data
    return values


def _check(operator: Operator) -> None:
    inputs, outputs = _ARITY[operator.name]
    given = [index for index in operator.inputs[:inputs] if index >= 0]
    if len(given) < inputs or len(operator.outputs) != outputs:
        raise MalformedModel(
            f"{operator.label} has {len(operator.inputs)} inputs and {len(operator.outputs)} outputs", op=operator.label
        )


def _name(operator: Operator) -> Name:
    if operator.options is None or "shared_name" not in operator.options:
        raise MalformedModel(f"{operator.label} has no options", op=operator.label)
    return str(operator.options["container"]), str(operator.options["shared_name"])
