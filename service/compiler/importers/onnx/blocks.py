"""Finds the images of real values that ONNX Runtime stores with channels last, in blocks of 16
(optimizer/nchwc_transformer.cc).

Float convolutions write such blocks, and pools after them read and write blocks. This affects sums of real values,
because ONNX Runtime adds in memory order. The size of a block is that of AVX-512 (`MlasNchwcGetBlockSize`).
"""

from __future__ import annotations

from service.compiler.importers.onnx.model import BFLOAT16_PRODUCTS, STORED_CONV, Model
from service.compiler.importers.onnx.rewriting import OnnxGraph

_BLOCK, _RANK = 16, 4
_CONVOLUTIONS = frozenset({"Conv", STORED_CONV, BFLOAT16_PRODUCTS["Conv"]})
_POOLS = frozenset({"AveragePool", "GlobalAveragePool", "GlobalMaxPool", "MaxPool"})
# Operators that compute on blocks if all of their operands are stored in blocks.
_FOLLOWING = frozenset({"Add", "BatchNormalization", "Concat", "Mul", "Relu", "Sigmoid", "Sum", "Tanh"})


def fills_blocks(shape: tuple[int, ...]) -> bool:
    """Returns true if an image of this shape can be stored in blocks."""
    return len(shape) == _RANK and shape[1] % _BLOCK == 0


def reads_blocks(model: Model, name: str) -> bool:
    """Returns true if a global pool reads the image `name` in blocks, provided that its channels fill whole blocks.
    Measured on ONNX Runtime 1.31.1: an input of the model is converted to blocks too, but the result of another
    operator is not. Other pools convert every image.
    """
    producers = OnnxGraph.whole(model).producers
    inputs = {end.name for end in model.inputs}
    waiting, seen = [(name, True)], {name}
    while waiting:
        image, by_pool = waiting.pop()
        maker = producers.get(image)
        if maker is None:
            if not (by_pool and image in inputs):
                return False
        elif maker.op_type in _POOLS or maker.op_type in _FOLLOWING:
            operands = [each for each in maker.inputs if each in producers or each in inputs]
            waiting += [(each, maker.op_type in _POOLS) for each in operands if each not in seen]
            seen.update(operands)
        elif maker.op_type not in _CONVOLUTIONS:
            return False
    return True
