"""Finds the real images whose channels ONNX Runtime keeps last, in blocks of 16 (optimizer/nchwc_transformer.cc).

Float convolutions write blocks, and pools of them read and write blocks. It matters where real values are added: the
order is that of memory. The size of a block is that of AVX-512 (`MlasNchwcGetBlockSize`).
"""

from __future__ import annotations

from service.compiler.importers.onnx.model import BFLOAT16_PRODUCTS, STORED_CONV, Model

BLOCK, BLOCKED_RANK = 16, 4
_CONVOLUTIONS = frozenset({"Conv", STORED_CONV, BFLOAT16_PRODUCTS["Conv"]})
_POOLS = frozenset({"AveragePool", "GlobalAveragePool", "GlobalMaxPool", "MaxPool"})
# Operators that compute in blocks if all of their operands are in blocks.
_FOLLOWING = frozenset({"Add", "BatchNormalization", "Concat", "Mul", "Relu", "Sigmoid", "Sum", "Tanh"})


def reads_blocks(model: Model, name: str) -> bool:
    """Returns true if a pool of whole blocks that reads the image `name` reads it in blocks: measured on ONNX Runtime
    1.31.1, an input of the model is put into blocks as well, and the result of another operator is not."""
    makers = {output: operator for operator in model.operators for output in operator.outputs}
    inputs = {end.name for end in model.inputs}
    waiting, seen = [(name, True)], {name}
    while waiting:
        image, by_pool = waiting.pop()
        maker = makers.get(image)
        if maker is None:
            if not (by_pool and image in inputs):
                return False
        elif maker.op_type in _POOLS or maker.op_type in _FOLLOWING:
            operands = [each for each in maker.inputs if each in makers or each in inputs]
            waiting += [(each, maker.op_type in _POOLS) for each in operands if each not in seen]
            seen.update(operands)
        elif maker.op_type not in _CONVOLUTIONS:
            return False
    return True
