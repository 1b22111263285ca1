"""Converts float operators between conversions to quantized operators, for all frameworks that write models in this
form.

ONNX (DequantizeLinear, Conv, Relu, QuantizeLinear) and PyTorch's exported programs write quantized models as float
operators between conversions from and to stored values. `fuse` turns them into operators on stored values, before
anything else reads the graph. A framework describes its operator names in a `Vocabulary`, and its own `Graph` provides
what its rules need.
"""

from service.compiler.importers.qdq.fusing import fuse
from service.compiler.importers.qdq.graph import MOVED, UNBOUNDED, Graph, Operator
from service.compiler.importers.qdq.vocabulary import Bounds, Fuse, Vocabulary

__all__ = ["MOVED", "UNBOUNDED", "Bounds", "Fuse", "Graph", "Operator", "Vocabulary", "fuse"]
