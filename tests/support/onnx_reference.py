"""Runs models in ONNX Runtime, with the options of the tests."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from onnxruntime import GraphOptimizationLevel, InferenceSession, SessionOptions

from service.core.models.arrays import Array


class Reference:
    """A model that runs on ONNX Runtime's CPU kernels with one thread.

    Args:
        model: the path of a file, or its bytes.
        optimized: true for ONNX Runtime's default, which replaces float operators between conversions by quantized
            ones. If false, every operator of the file is computed unchanged.
    """

    def __init__(self, model: bytes | Path, *, optimized: bool) -> None:
        options = SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        options.add_session_config_entry("session.qdqisint8allowed", "1")  # as in `references/onnxruntime.py`
        if not optimized:
            options.graph_optimization_level = GraphOptimizationLevel.ORT_DISABLE_ALL
        source = model if isinstance(model, bytes) else str(model)
        self.session = InferenceSession(source, options, providers=["CPUExecutionProvider"])

    def __call__(self, inputs: Sequence[Array]) -> list[Array]:
        names = [end.name for end in self.session.get_inputs()]
        return list(self.session.run(None, dict(zip(names, inputs, strict=True))))
