"""Names the inputs that choose a branch of an `If`, for the hint of an error in a branch."""

from __future__ import annotations

from service.compiler.importers.names import join_names, shortened
from service.compiler.importers.onnx.file.branches import IF
from service.compiler.importers.onnx.model import Model
from service.core.errors import MalformedModel, OctetError, Unsupported

_OF_SHAPES = ("Shape", "Size")


def with_advice(error: OctetError, model: Model) -> OctetError:
    """Returns an error that an operator of a branch has caused with another hint, if the branch depends on inputs: a
    fixed value of these inputs chooses one branch, and the other one is not compiled. The file is then not malformed,
    because a runtime never computes the branch with the given shapes. Returns other errors unchanged.

    Args:
        model: the model of the file. The operators of a branch have the index of their `If`.
    """
    index = (error.op or "").rpartition("#")[2]
    decided = (each for each in model.operators if each.op_type == IF and each.inputs and str(each.index) == index)
    for operator in decided:
        names = [shortened(name) for name in _inputs_of(model, operator.inputs[0])]
        if not names:
            continue
        hint = (
            f"the branch depends on the input {join_names(names)}: if it is always the same, fix it with "
            f"--fix {names[0]}=VALUE, or export the model with one branch"
        )
        message = error.message
        if isinstance(error, MalformedModel):
            message = f"{operator.label} needs both of its branches, and {message}"
        return Unsupported(message, stage=error.stage, op=error.op, tensor=error.tensor, hint=hint)
    return error


def _inputs_of(model: Model, name: str) -> list[str]:
    """Returns the model's inputs whose values the tensor `name` is computed from, in the model's order. Shapes are not
    values: the import computes conditions that depend on them.
    """
    producers = {output: operator for operator in model.operators for output in operator.outputs}
    found, waiting = {name}, [name]
    while waiting:
        producer = producers.get(waiting.pop())
        new = (
            {each for each in producer.inputs if each} - found
            if producer is not None and producer.op_type not in _OF_SHAPES
            else set()
        )
        found |= new
        waiting += new
    return [end.name for end in model.inputs if end.name in found]
