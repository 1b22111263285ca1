"""Quantization without a calibration set. This quantization applies to products with constant matrices. Either their
operands are quantized at run time, or only their weights are quantized, in blocks along the summed axis.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from service.compiler.importers.onnx.support import is_quantized
from service.core.builds.quantization import check_blocks
from service.core.errors import Unsupported
from service.core.models.arrays import Array
from service.quantize.file.document import Document, Node
from service.quantize.rewrites.folding import tidy
from service.quantize.rewrites.patterns import PATTERNS
from service.quantize.rewrites.rewriting import MOST_WEIGHT, weight_scales

_FLOAT = 1  # TensorProto.DataType
_LEAST_OPSET = 11  # since this operator set, DynamicQuantizeLinear exists
_TYPES = ("Gemm", "MatMul")


@dataclass(frozen=True)
class Product:
    """A product of x and a constant matrix, plus a bias.

    Attributes:
        weights: `[K, N]` float32.
        bias: the name of the addend, or "" if there is none.
    """

    x: str
    weights: Array
    bias: str
    output: str


@dataclass(frozen=True)
class Flavoured:
    """A quantized model.

    Attributes:
        file: ONNX.
        layers: the names of the outputs of the quantized products.
    """

    file: bytes
    layers: tuple[str, ...]


def dynamic(model: bytes) -> Flavoured:
    """Rewrites products with DynamicQuantizeLinear and MatMulInteger. Weights are int8 with a scale per column.
    Operands are uint8, and their range is computed at run time. ONNX Runtime's `quantize_dynamic` writes the same form.

    Raises:
        Unsupported: the model is already quantized, has no such product, or its operator set is too old.
    """
    stored: dict[str, tuple[str, str, str]] = {}  # operand -> the names of its stored values, scale and zero point

    def write(document: Document, product: Product) -> list[Node]:
        made, x = [], product.x
        if x not in stored:
            names = [document.new_name(f"{x}_{what}") for what in ("quantized", "scale", "zero_point")]
            first = Node.create("DynamicQuantizeLinear", (x,), names[0])
            made.append(Node(first.op_type, first.inputs, tuple(names), first.attributes, first.rest))
            stored[x] = (names[0], names[1], names[2])
        values, scale, point = stored[x]
        scales = weight_scales(product.weights, 1, 1.0, None)
        steps = np.clip(np.rint(product.weights / scales), -MOST_WEIGHT, MOST_WEIGHT).astype(np.int8)
        weights = document.add_constant(f"{product.output}_weights", steps)
        own = document.add_constant(f"{product.output}_weights_scale", scales)
        sums, real, both = (document.new_name(f"{product.output}_{what}") for what in ("sums", "cast", "scales"))
        made.append(Node.create("MatMulInteger", (values, weights, point), sums))
        made.append(Node.create("Cast", (sums,), real, to=_FLOAT))
        made.append(Node.create("Mul", (scale, own), both))
        return [*made, *_biased(document, product, lambda output: [Node.create("Mul", (real, both), output)])]

    return _rewritten(model, write)


def blocked(model: bytes, bits: int, block: int = 32) -> Flavoured:
    """Rewrites products with MatMulNBits. Weights have 4 or 8 bits, and each `block` of them along the summed axis has
    its own scale and zero point. Operands stay float.

    Raises:
        Unsupported: see `dynamic`.
        InvalidInput: see `check_blocks`.
    """
    check_blocks(bits, block)

    def write(document: Document, product: Product) -> list[Node]:
        depth, units = product.weights.shape
        steps, scales, points = in_blocks(product.weights.T, bits, block)
        parts = ((_packed(steps, bits), "blocks"), (scales.reshape(-1), "scales"), (_packed(points, bits), "points"))
        names = [document.add_constant(f"{product.output}_{what}", values) for values, what in parts]
        attributes = {"K": depth, "N": units, "bits": bits, "block_size": block}
        domain = document.use_domain("com.microsoft")

        def multiplied(output: str) -> list[Node]:
            return [Node.create("MatMulNBits", (product.x, *names), output, domain, **attributes)]

        return _biased(document, product, multiplied)

    return _rewritten(model, write)


def in_blocks(weights: Array, bits: int, block: int) -> tuple[Array, Array, Array]:
    """Quantizes weights `[N, K]` in blocks. Returns the stored values, `[N, blocks, block]` uint8, and the scales and
    zero points, `[N, blocks]` each. A block's range is extended to include zero, and divided into equal steps. The last
    block is padded with zeros.
    """
    units, depth = weights.shape
    count, most = -(-depth // block), (1 << bits) - 1
    padded = np.zeros((units, count * block), np.float32)
    padded[:, :depth] = weights
    each = padded.reshape(units, count, block)
    low, high = np.minimum(each.min(axis=2), 0), np.maximum(each.max(axis=2), 0)
    scales = ((high.astype(np.float64) - low) / most).astype(np.float32)
    scales = np.where(scales > 2.0**-126, scales, np.float32(1))
    points = np.clip(np.rint(-low / scales), 0, most)
    steps = np.clip(np.rint(each / scales[:, :, None]) + points[:, :, None], 0, most)
    return steps.astype(np.uint8), scales, points.astype(np.uint8)


def _packed(values: Array, bits: int) -> Array:
    """Packs 4-bit values into bytes along the last axis. The first value of a pair is in the lower half."""
    if bits == 8:
        return values
    if values.shape[-1] % 2:
        values = np.concatenate([values, np.zeros((*values.shape[:-1], 1), np.uint8)], axis=-1)
    return np.asarray(values[..., ::2] | values[..., 1::2] << 4)


def _rewritten(model: bytes, write: Callable[[Document, Product], list[Node]]) -> Flavoured:
    document = Document(model)
    if any(is_quantized(node.op_type) for node in document.nodes):
        raise Unsupported("this model is quantized already", hint="octet push and octet compile accept it as it is")
    if document.opset < _LEAST_OPSET:
        raise Unsupported(f"the model uses operator set {document.opset}", hint="convert it to 11 or newer")
    tidy(document)
    nodes: list[Node] = []
    layers = []
    for node in document.nodes:
        product = _product(document, node)
        nodes += [node] if product is None else write(document, product)
        layers += [] if product is None else [product.output]
    if not layers:
        raise Unsupported(
            "no operator of this model multiplies by a constant matrix", hint="quantize it with a calibration set"
        )
    document.nodes = nodes
    return Flavoured(document.serialize(), tuple(layers))


def _product(document: Document, node: Node) -> Product | None:
    if node.op_type not in _TYPES or any(node.outputs[1:]) or node.inputs[0] in document.constants:
        return None
    weights = document.constants.get(node.inputs[1])
    if weights is None or weights.dtype != np.float32 or weights.ndim != 2 or not weights.size:
        return None
    if not np.isfinite(weights).all() or PATTERNS[node.op_type].obstacle(document, node) is not None:
        return None
    across = weights.T if node.op_type == "Gemm" and node.attributes.get("transB", 0) else weights
    bias = node.inputs[2] if len(node.inputs) > 2 else ""
    return Product(node.inputs[0], np.ascontiguousarray(across), bias, node.outputs[0])


def _biased(document: Document, product: Product, multiplied: Callable[[str], list[Node]]) -> list[Node]:
    """Returns the operators of a product, including the addition of its bias if it has one. The last operator produces
    the product's output.
    """
    if not product.bias:
        return multiplied(product.output)
    between = document.new_name(f"{product.output}_product")
    return [*multiplied(between), Node.create("Add", (between, product.bias), product.output)]
