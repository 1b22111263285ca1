"""From float operators between conversions to quantized operators, for every framework that writes both.

ONNX (DequantizeLinear, Conv, Relu, QuantizeLinear) and PyTorch's exported programs write quantized models as float
operators between conversions from and to stored values. `fuse` makes operators on stored values of them, before
anything else looks. A framework says in a `Vocabulary` how its operators are called, and in a `Graph` of its own what
else its rules ask for.
"""

from service.compiler.importers.qdq.fusing import fuse
from service.compiler.importers.qdq.graph import MOVED, UNBOUNDED, Graph, Operator
from service.compiler.importers.qdq.vocabulary import Bounds, Fuse, Vocabulary

__all__ = ["MOVED", "UNBOUNDED", "Bounds", "Fuse", "Graph", "Operator", "Vocabulary", "fuse"]
