"""Simplifies a model before it is quantized: removes copies, folds scales and shifts of a convolution's result into the
convolution, and replaces operators by equivalent ones that have an integer form.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from service.core.errors import MalformedModel
from service.core.models.arrays import Array
from service.quantize.file.document import Document, Node, rewire

# If the first operand is a picture, the result of these operators has the same shape.
_ELEMENTWISE = ("Clip", "HardSwish", "LeakyRelu", "PRelu", "Relu", "Sigmoid")
_FILTERS = {"Conv": 0, "ConvTranspose": 1}  # operator -> the axis of the output channels in its weights
_EPSILON = 1e-5  # the default of BatchNormalization


@dataclass(frozen=True)
class _Affine:
    """The function x * factor + addend. Factor and addend are `[C]` or `[1]` float64: one value per channel, or one for
    all.
    """

    factor: Array
    addend: Array


def tidy(document: Document) -> None:
    """Applies all simplifications."""
    drop_copies(document)
    fold_moved_constants(document)
    fold_affine(document)
    unify(document)


def drop_copies(document: Document) -> None:
    """Removes every Identity that does not produce an output of the model. Exporters insert one if two layers have
    equal constants. Such an Identity would make the weights of one layer look computed.
    """
    source: dict[str, str] = {}
    kept = []
    for node in document.nodes:
        inputs = tuple(source.get(name, name) for name in node.inputs)
        if node.op_type == "Identity" and node.outputs[0] not in document.outputs:
            source[node.outputs[0]] = inputs[0]
        else:
            kept.append(node if inputs == node.inputs else rewire(node, dict(enumerate(inputs))))
    document.nodes = kept


def fold_moved_constants(document: Document) -> None:
    """Removes operators that only move elements of constants, such as Paddle's Reshape of biases."""
    kept = []
    for node in document.nodes:
        known = document.constants.get(node.inputs[0]) if node.inputs else None
        moved = (
            _move_constant(document, node, known)
            if known is not None and node.outputs[0] not in document.outputs
            else None
        )
        if moved is None:
            kept.append(node)
        else:
            document.set_constant(node.outputs[0], moved)
    document.nodes = kept


def _move_constant(document: Document, node: Node, known: Array) -> Array | None:
    other = document.constants.get(node.inputs[1]) if len(node.inputs) > 1 else None
    try:
        match node.op_type:
            case "Identity":
                return known
            case "Reshape" if other is not None and 0 not in other:
                return known.reshape([int(size) for size in other])
            case "Transpose":
                order = node.attributes.get("perm")
                return known.T if order is None else known.transpose([int(axis) for axis in np.asarray(order)])
            case "Unsqueeze" if other is not None:
                return np.expand_dims(known, tuple(int(axis) for axis in other.reshape(-1)))
            case _:
                return None
    except (ValueError, IndexError) as error:
        raise MalformedModel(f"{node.label} does not fit its constant: {error}", op=node.label) from error


def fold_affine(document: Document) -> int:
    """Folds operators into the convolution whose result they read, if nothing else reads this result and the weights of
    the convolution are constant. These operators are BatchNormalization, and multiplication by or addition of constants
    per channel. Several may follow one another.

    Conv(x, w, b) * f + a equals Conv(x, w * f, b * f + a) (https://arxiv.org/abs/1712.05877, section 3.2). The
    constants are computed in float64.

    Returns:
        The number of operators that were folded.
    """
    readers = document.readers()
    folded: dict[Node, Node | None] = {}
    for node in document.nodes:
        made: Node = node
        while made.op_type in _FILTERS and made.outputs[0] not in document.outputs:
            behind = readers.get(made.outputs[0], [])
            last = behind[0] if len(behind) == 1 else None
            found = _affine(document, made, last) if last is not None else None
            whole = _fold(document, made, found, last.outputs[0]) if last is not None and found is not None else None
            if last is None or whole is None:
                break
            made, folded[last] = whole, None
        if made is not node:
            folded[node] = made
    document.nodes = [kept for node in document.nodes if (kept := folded.get(node, node)) is not None]
    return sum(kept is None for kept in folded.values())


def unify(document: Document) -> None:
    """Replaces operators by equivalent ones that have an integer form: x - c by x + (-c), x / c by x * (1 / c), and the
    mean over the rows and columns of a convolution's result by GlobalAveragePool.
    """
    pictures: set[str] = set()  # names of tensors [N, C, H, W]
    made: list[Node] = []
    for node in document.nodes:
        first = node.inputs[0] if node.inputs else ""
        known = _constant(document, node, 1)
        if (node.op_type in _FILTERS and known is not None and known.ndim == 4) or (
            node.op_type in _ELEMENTWISE and first in pictures
        ):
            pictures.add(node.outputs[0])
        if node.op_type == "Sub" and known is not None:
            node = Node.create(
                "Add", (first, document.add_constant(f"{node.inputs[1]}_negated", -known)), *node.outputs
            )
        elif node.op_type == "Div" and known is not None and known.all():
            inverse = document.add_constant(
                f"{node.inputs[1]}_inverse", (1 / known.astype(np.float64)).astype(np.float32)
            )
            node = Node.create("Mul", (first, inverse), *node.outputs)
        elif node.op_type == "ReduceMean" and first in pictures and _is_global(document, node):
            node = Node.create("GlobalAveragePool", (first,), *node.outputs)
        made.append(node)
    document.nodes = made


def _constant(document: Document, node: Node, index: int) -> Array | None:
    """Returns the operand at index `index` if it is a float32 constant; otherwise None."""
    known = document.constants.get(node.inputs[index]) if len(node.inputs) > index else None
    return known if known is not None and known.dtype == np.float32 else None


def _is_global(document: Document, node: Node) -> bool:
    """Returns true if a ReduceMean reduces the last two of four dimensions and keeps them."""
    axes = document.constants.get(node.inputs[1]) if len(node.inputs) > 1 else node.attributes.get("axes")
    positions = np.asarray(() if axes is None else axes).reshape(-1).tolist()
    is_last = sorted(axis % 4 for axis in positions if axis in range(-4, 4)) == [2, 3]
    return is_last and node.attributes.get("keepdims", 1) == 1


def _affine(document: Document, node: Node, behind: Node) -> _Affine | None:
    """If `behind`, which reads the result of a convolution, is an affine operation per channel, returns it; otherwise
    None.
    """
    if behind.op_type == "BatchNormalization" and behind.inputs[0] == node.outputs[0]:
        return _normalization(document, behind)
    if behind.op_type not in ("Add", "Div", "Mul", "Sub"):
        return None
    position = 1 if behind.inputs[0] == node.outputs[0] else 0
    known, weights = _constant(document, behind, position), _constant(document, node, 1)
    if known is None or weights is None or (position == 0 and behind.op_type in ("Div", "Sub")):
        return None
    shape = (1,) * (weights.ndim - known.ndim) + known.shape
    if len(shape) != weights.ndim or known.size not in (1, shape[1]):  # channels are the second dimension
        return None
    values, nothing, one = known.reshape(-1).astype(np.float64), np.zeros(1), np.ones(1)
    match behind.op_type:
        case "Add":
            return _Affine(one, values)
        case "Sub":
            return _Affine(one, -values)
        case "Mul":
            return _Affine(values, nothing)
        case _:
            return _Affine(1 / values, nothing) if values.all() else None


def _normalization(document: Document, norm: Node) -> _Affine | None:
    rows = [_constant(document, norm, index) for index in range(1, 5)]
    epsilon = norm.attributes.get("epsilon", _EPSILON)
    if len(norm.inputs) != 5 or any(norm.outputs[1:]) or norm.attributes.get("training_mode", 0):
        return None
    if not isinstance(epsilon, float) or any(row is None or row.ndim != 1 for row in rows):
        return None
    gamma, beta, mean, variance = (row.astype(np.float64) for row in rows if row is not None)
    if len({row.size for row in (gamma, beta, mean, variance)}) != 1:
        return None
    with np.errstate(invalid="ignore", divide="ignore"):
        factor = gamma / np.sqrt(variance + np.float64(np.float32(epsilon)))
    return _Affine(factor, beta - mean * factor)


def _fold(document: Document, node: Node, behind: _Affine, output: str) -> Node | None:
    """Returns the folded convolution, which produces `output`, or None if the two cannot be folded."""
    weights, has_bias = _constant(document, node, 1), len(node.inputs) > 2 and node.inputs[2] != ""
    bias = _constant(document, node, 2) if has_bias else np.zeros(1, np.float32)
    axis = _FILTERS[node.op_type]
    if weights is None or bias is None or (axis and node.attributes.get("group", 1) != 1) or weights.ndim <= axis:
        return None
    filters = weights.shape[axis]
    if any(row.size not in (1, filters) for row in (behind.factor, behind.addend, bias)):
        return None
    shape = [1] * weights.ndim
    shape[axis] = -1
    scaled = (weights * behind.factor.reshape(shape)).astype(np.float32)
    addend = (bias.reshape(-1) * behind.factor + behind.addend).astype(np.float32)
    if not (np.isfinite(scaled).all() and np.isfinite(addend).all()):
        return None
    operands = {
        1: document.add_constant(f"{output}_weights", scaled),
        2: document.add_constant(f"{output}_bias", np.broadcast_to(addend, (filters,))),
    }
    return rewire(node, operands, output)
