"""Decides which operators and tensors are quantized. Each entry of `PATTERNS` is the rule for one operator type."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from service.compiler.qnn.ops.defined import DEFINED
from service.quantize.file.document import Document, Node

# A function that returns the reason why an operator stays in float, or None.
Obstacle = Callable[[Document, Node], str | None]


@dataclass(frozen=True)
class Pattern:
    """The rule for one type of operator.

    Attributes:
        operands: the indices of the activations among the operator's inputs; None means all inputs.
        weights: the index of the weights among the inputs.
        axis: returns the axis of the weights that counts channels. Each channel has its own scale.
        bias: the index of the bias. The bias is stored as int32 in steps of the products' scale.
        moves: true if the result consists of elements of the operand. The result then has the operand's type, and the
            operator is quantized if its operand is.
        follows: true if the operator is quantized only if other operators already store its operands and its result. A
            function of one tensor then becomes a table. An operator without an integer form then only reads and writes
            bytes.
        may_end_real: true if the operator is as fast with a float result. A result that is an output of the model is
            then not rounded to 8 bits.
        obstacle: returns another reason why the operator stays in float, or None.
        computed: the rule that applies if the operator's weights are computed.
        interpolated: the rule that applies if the operator's mode interpolates between elements.
    """

    operands: tuple[int, ...] | None = (0,)
    weights: int | None = None
    axis: Callable[[Node], int] = lambda node: 0
    bias: int | None = None
    moves: bool = False
    follows: bool = False
    may_end_real: bool = False
    obstacle: Obstacle = lambda document, node: None
    computed: Pattern | None = None
    interpolated: Pattern | None = None

    def of(self, document: Document, node: Node) -> Pattern:
        """Returns the rule for `node`. The rule depends on whether the weights are computed, and whether the node
        interpolates.
        """
        if self.interpolated is not None and node.attributes.get("mode", "nearest") != "nearest":
            return self.interpolated
        is_computed = self.weights is not None and node.inputs[self.weights] not in document.constants
        return self.computed if self.computed is not None and is_computed else self


def _matrix(document: Document, node: Node) -> str | None:
    attributes = node.attributes
    if attributes.get("alpha", 1.0) != 1.0 or attributes.get("beta", 1.0) != 1.0 or attributes.get("transA", 0):
        return "it scales its operands, or transposes the first one"
    return None if document.constants[node.inputs[1]].ndim == 2 else "its weights are not a matrix"


def _grouped(document: Document, node: Node) -> str | None:
    return None if node.attributes.get("group", 1) == 1 else "it is grouped"


def _zeros(document: Document, node: Node) -> str | None:
    """Returns an obstacle unless the padding is zero. Zero is exact in any type."""
    if node.attributes.get("mode", "constant") != "constant":
        return None
    value = document.constants.get(node.inputs[2]) if len(node.inputs) > 2 and node.inputs[2] else None
    has_value = len(node.inputs) > 2 and node.inputs[2] != ""
    return "it pads with values other than zero" if has_value and (value is None or value.any()) else None


def _unknown(node: Node) -> str:
    if any(definition.onnx == node.op_type for definition in DEFINED.values()):
        return "a dialect defines it; compiling makes a table of it, or computes it together with the layer before it"
    return "quantizing this operator is not supported"


_BINARY, _UNARY, _MOVE, _TABLE = Pattern(operands=None), Pattern(), Pattern(moves=True), Pattern(follows=True)

PATTERNS: Mapping[str, Pattern] = {
    "Abs": _TABLE,
    "Add": _BINARY,
    "AveragePool": _UNARY,
    "Concat": _BINARY,
    "Conv": Pattern(weights=1, bias=2),
    "ConvTranspose": Pattern(weights=1, axis=lambda node: 1, bias=2, obstacle=_grouped),
    "DepthToSpace": _MOVE,
    "Elu": _TABLE,
    "Erf": _TABLE,
    "Exp": _TABLE,
    "Flatten": _MOVE,
    "Gelu": _TABLE,
    "Gemm": Pattern(
        weights=1,
        axis=lambda node: 0 if node.attributes.get("transB", 0) else 1,
        bias=2,
        may_end_real=True,
        obstacle=_matrix,
    ),
    "GlobalAveragePool": _UNARY,
    "GlobalMaxPool": _MOVE,
    "HardSigmoid": _TABLE,
    "HardSwish": _TABLE,
    "LeakyRelu": _UNARY,
    "MatMul": Pattern(
        weights=1,
        axis=lambda node: 1,
        may_end_real=True,
        obstacle=_matrix,
        computed=Pattern(operands=(0, 1), may_end_real=True),  # the two products of attention
    ),
    "MaxPool": _MOVE,
    "Mul": _BINARY,
    "Neg": _TABLE,
    "Pad": Pattern(moves=True, obstacle=_zeros),
    "Reshape": _MOVE,
    "ReduceMean": Pattern(follows=True),
    "Resize": Pattern(moves=True, interpolated=Pattern(follows=True)),
    "Sigmoid": _UNARY,
    "Slice": _MOVE,
    "Softplus": _TABLE,
    "SpaceToDepth": _MOVE,
    "Split": _MOVE,
    "Sqrt": _TABLE,
    "Squeeze": _MOVE,
    "Sub": Pattern(operands=None, follows=True),
    "Tanh": _TABLE,
    "Transpose": _MOVE,
    "Unsqueeze": _MOVE,
}
# Operators whose results are not float, even if their operands are.
_NOT_REAL = {"ArgMax", "ArgMin", "Cast", "Equal", "Greater", "IsNaN", "Less", "NonZero", "Shape", "Size"}
# Functions of each element, of one tensor and scalars. Several of them in succession on one tensor become one table.
_FUNCTIONS = (
    *("Abs", "Add", "Clip", "Div", "Elu", "Erf", "Exp", "Gelu", "HardSigmoid", "HardSwish", "LeakyRelu", "Mul", "Relu"),
    *("Sigmoid", "Softplus", "Sqrt", "Sub", "Tanh"),
)
# If nothing but such an activation reads a result, the activation becomes part of that result's range.
ACTIVATIONS = ("Clip", "Relu")


@dataclass(frozen=True, eq=False)
class Layer:
    """An operator that is quantized.

    Attributes:
        operands: index -> activation.
        constants: index -> activation that is a constant, such as the addend of an Add.
        result: the tensor that is stored; None if the result stays float. If an activation follows, it is the result of
            the activation.
    """

    node: Node
    pattern: Pattern
    operands: Mapping[int, str]
    constants: Mapping[int, str]
    result: str | None

    @property
    def name(self) -> str:
        """The name of the operator's output. Options exclude the operator by this name."""
        return self.node.outputs[0]


@dataclass(frozen=True)
class Plan:
    """The operators and tensors of a model that are quantized.

    Attributes:
        tensors: tensor that is stored -> the tensor that determines its type.
        real: operators that stay in float, as `Conv → features` -> the reason.
    """

    layers: tuple[Layer, ...]
    tensors: Mapping[str, str]
    real: Mapping[str, str]

    @property
    def observed(self) -> list[str]:
        """The tensors that determine their own type."""
        return list(dict.fromkeys(self.tensors.values()))


def plan(
    document: Document,
    patterns: Mapping[str, Pattern] = PATTERNS,
    kept: Collection[str] = (),
) -> Plan:
    """Applies `patterns` to the operators of a document.

    Args:
        kept: the names of outputs of operators that must stay in float.
    """
    readers, reals, given = document.readers(), _real_tensors(document), _computed_from(document, document.inputs)
    found: list[tuple[Node, Pattern, str]] = []
    tensors: dict[str, str] = {}
    real: dict[str, str] = {}
    absorbed: set[Node] = set()
    followers: dict[Node, Pattern] = {}
    chained = _chained(document, readers)
    for node in document.nodes:
        pattern = patterns.get(node.op_type)
        pattern = pattern.of(document, node) if pattern is not None else None
        if node in absorbed or node in chained or node.outputs[0] not in reals:
            continue
        if pattern is not None and pattern.moves:
            if node.inputs[0] in tensors and node.outputs[0] not in kept and not pattern.obstacle(document, node):
                found.append((node, pattern, node.outputs[0]))
                tensors |= dict.fromkeys(filter(None, node.outputs), tensors[node.inputs[0]])
            continue  # the operator only moves float values
        reason = _obstacle(document, node, pattern, kept, given)
        if pattern is None or reason is not None:
            real[node.label] = reason or _unknown(node)
            continue
        if pattern.follows:
            followers[node] = pattern
            continue
        activation = _activation(document, readers, node)
        absorbed |= {activation} if activation is not None else set()
        result = (activation or node).outputs[0]
        found.append((node, pattern, result))
        for position in _places(node, pattern):
            if node.inputs[position] not in document.constants:
                tensors.setdefault(node.inputs[position], node.inputs[position])
        tensors[result] = result
    for node, pattern in reversed(_moves_of_functions(document, patterns, kept, {*followers, *chained})):
        if node.outputs[0] in tensors and node.inputs[0] not in tensors:
            found.append((node, pattern, node.outputs[0]))
            moved = {tensors[name] for name in filter(None, node.outputs) if name in tensors}
            tensors = {name: node.inputs[0] if kind in moved else kind for name, kind in tensors.items()}
            tensors[node.inputs[0]] = node.inputs[0]
    for node, pattern in followers.items():
        ends = [node.inputs[position] for position in _places(node, pattern)]
        if all(name in tensors for name in (*ends, node.outputs[0]) if name not in document.constants):
            found.append((node, pattern, node.outputs[0]))
        else:
            real[node.label] = "an operand or its result stays in float"
    stays_real = _float_ends(readers, found)
    layers = tuple(_layer(document, node, pattern, result, result in stays_real) for node, pattern, result in found)
    return Plan(layers, {name: kind for name, kind in tensors.items() if name not in stays_real}, real)


def _moves_of_functions(
    document: Document, patterns: Mapping[str, Pattern], kept: Collection[str], functions: Collection[Node]
) -> list[tuple[Node, Pattern]]:
    """Returns the operators that move the elements of a function's result, such as the pool after a HardSwish, or the
    elements of another such operator. They are quantized if an operator in integers reads their result: the function
    then becomes a table, and everything between the two layers stays in integers.
    """
    results = {name for node in functions for name in node.outputs}
    found = []
    for node in document.nodes:
        pattern = patterns.get(node.op_type)
        pattern = pattern.of(document, node) if pattern is not None else None
        if pattern is None or not pattern.moves or node.inputs[0] not in results:
            continue
        if node.outputs[0] not in kept and not pattern.obstacle(document, node):
            found.append((node, pattern))
            results.update(filter(None, node.outputs))
    return found


def _obstacle(
    document: Document, node: Node, pattern: Pattern | None, kept: Collection[str], given: Collection[str]
) -> str | None:
    if pattern is None:
        return None
    if node.outputs[0] in kept:
        return "it was kept in float"
    if any(node.outputs[1:]):
        return "it has several outputs"
    for position in (pattern.weights, pattern.bias):
        name = node.inputs[position] if position is not None and position < len(node.inputs) else ""
        known = document.constants.get(name)
        if name and (known is None or known.dtype.name != "float32" or not known.size):
            return f"its {'weights are' if position == pattern.weights else 'bias is'} computed, or not float32"
    positions = _places(node, pattern)
    if all(node.inputs[position] in document.constants for position in positions):
        return "its operands are constants"
    for position in positions:
        if not node.inputs[position]:
            return "an operand is left out"
        if node.inputs[position] not in given and node.inputs[position] not in document.constants:
            return "an operand is computed from constants"
        known = document.constants.get(node.inputs[position])
        if known is not None and (known.dtype.name != "float32" or not known.size):
            return "an operand is not float32"
    return pattern.obstacle(document, node)


def _places(node: Node, pattern: Pattern) -> tuple[int, ...]:
    return tuple(range(len(node.inputs))) if pattern.operands is None else pattern.operands


def _activation(document: Document, readers: Mapping[str, list[Node]], node: Node) -> Node | None:
    """Returns the activation after `node`, if it is the only reader of the result of `node`."""
    behind = readers.get(node.outputs[0], [])
    alone = len(behind) == 1 and node.outputs[0] not in document.outputs
    is_one = alone and behind[0].op_type in ACTIVATIONS and behind[0].inputs[0] == node.outputs[0]
    known = is_one and all(name == "" or name in document.constants for name in behind[0].inputs[1:])
    return behind[0] if known else None


def _chained(document: Document, readers: Mapping[str, list[Node]]) -> set[Node]:
    """Returns the operators that together compute a function of one tensor, such as x * clip(x + 3) / 6. Only the
    result of the whole function is rounded, by the operators that read it.
    """
    sources: dict[str, str] = {}  # result of a function -> the tensor of which it is a function
    made: dict[str, Node] = {}
    for node in document.nodes:
        made |= dict.fromkeys(node.outputs, node)
        if node.op_type not in _FUNCTIONS or any(node.outputs[1:]):
            continue
        given = [name for name in node.inputs if name and name not in document.constants]
        numbers = [document.constants[name] for name in node.inputs if name in document.constants]
        found = {sources.get(name, name) for name in given}
        maker = made.get(given[0]) if given else None
        is_range = maker is not None and given[0] not in sources and _activation(document, readers, maker) is node
        if len(found) == 1 and all(number.size == 1 for number in numbers) and not is_range:
            sources[node.outputs[0]] = found.pop()
    parts = {node for name, node in made.items() if name in sources}
    return {
        node
        for node in parts
        if any(name in sources for name in node.inputs)
        or any(reader in parts for reader in readers.get(node.outputs[0], []))
    }


def _float_ends(readers: Mapping[str, list[Node]], found: list[tuple[Node, Pattern, str]]) -> frozenset[str]:
    """Returns results that no quantized operator reads, if the operators that compute them are as fast with a float
    result.
    """
    quantized = {node for node, _, _ in found}
    return frozenset(
        result
        for _, pattern, result in found
        if pattern.may_end_real and not any(reader in quantized for reader in readers.get(result, []))
    )


def _real_tensors(document: Document) -> set[str]:
    """Returns the float32 tensors, including those that operators compute from float32 tensors."""
    known = (name for name, values in document.constants.items() if values.dtype == "float32")
    return _computed_from(document, [*document.floats, *known], _NOT_REAL)


def _computed_from(document: Document, tensors: Collection[str], without: Collection[str] = ()) -> set[str]:
    """Returns `tensors` and all tensors that operators compute from them. Operators of the types `without` are
    ignored.
    """
    found = {*tensors}
    for node in document.nodes:
        if node.op_type not in without and any(name in found for name in node.inputs):
            found.update(node.outputs)
    return found


def _layer(document: Document, node: Node, pattern: Pattern, result: str, is_real: bool) -> Layer:
    operands = {position: node.inputs[position] for position in _places(node, pattern)}
    constants = {position: name for position, name in operands.items() if name in document.constants}
    given = {position: name for position, name in operands.items() if position not in constants}
    return Layer(node, pattern, given, constants, None if is_real else result)


def counted(real: Mapping[str, str]) -> list[tuple[str, str, int]]:
    """Counts the operators that stay in float by type and reason. The most frequent come first."""
    kinds = Counter((label.split(" ")[0], reason) for label, reason in real.items())
    return [(op_type, reason, times) for (op_type, reason), times in kinds.most_common()]
