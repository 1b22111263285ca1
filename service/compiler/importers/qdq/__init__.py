"""Converts float operators between conversions to quantized operators, for all frameworks whose quantized models have
this form.

Quantized models in ONNX (DequantizeLinear, Conv, Relu, QuantizeLinear) and PyTorch's exported programs consist of float
operators between conversions from and to stored values. `fuse` turns these into operators on stored values before
anything else reads the graph. The operator names of a framework are in a `Vocabulary`, and a framework's own `Graph`
provides what its rules need.
"""

from service.compiler.importers.qdq.fusing import fuse
from service.compiler.importers.qdq.graph import MOVED, UNBOUNDED, Graph, Operator
from service.compiler.importers.qdq.vocabulary import Bounds, Fuse, Vocabulary

__all__ = ["MOVED", "UNBOUNDED", "Bounds", "Fuse", "Graph", "Operator", "Vocabulary", "fuse"]
