"""ONNX Runtime."""

from __future__ import annotations

from collections.abc import Sequence

from onnxruntime import InferenceSession, SessionOptions

from service.compiler.references import Array


def answer(source: str, numerics: str, samples: Sequence[Sequence[Array]]) -> list[list[Array]]:
    """What the model in `source` answers to each of `samples`, optimized as ONNX Runtime does by itself.

    In a model of float operators between conversions, that is what makes quantized operators of them.
    """
    options = SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    # By default it makes uint8 of int8 on x86-64, and leaves in float32 what it then cannot match any more.
    options.add_session_config_entry("session.qdqisint8allowed", "1")
    session = InferenceSession(source, options, providers=["CPUExecutionProvider"])
    names = [end.name for end in session.get_inputs()]
    return [list(session.run(None, dict(zip(names, sample, strict=True)))) for sample in samples]
