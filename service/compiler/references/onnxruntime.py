"""ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from onnxruntime import GraphOptimizationLevel, InferenceSession, SessionOptions

from service.compiler.references import Answer, Array

_LEVEL = "graph_optimization_level"


def open_session(source: str, options: Mapping[str, str]) -> Answer:
    """The model in `source`, on the CPU's kernels and one thread.

    Args:
        options: session configuration entries, and the member `graph_optimization_level` of `SessionOptions`.
    """
    settings = SessionOptions()
    settings.intra_op_num_threads = settings.inter_op_num_threads = 1
    for name, value in options.items():
        if name == _LEVEL:
            settings.graph_optimization_level = GraphOptimizationLevel.__members__[value]
        else:
            settings.add_session_config_entry(name, value)
    session = InferenceSession(source, settings, providers=["CPUExecutionProvider"])
    names = [end.name for end in session.get_inputs()]

    def answer(sample: Sequence[Array]) -> list[Array]:
        return list(session.run(None, dict(zip(names, sample, strict=True))))

    return answer
