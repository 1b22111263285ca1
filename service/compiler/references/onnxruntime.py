"""Runs models in ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from onnxruntime import GraphOptimizationLevel, InferenceSession, SessionOptions

from service.compiler.importers.detect import HEAD_BYTES, ZIP, detect_format
from service.compiler.importers.onnx.file.package import SUFFIX, archive_of
from service.compiler.references import Answer
from service.core.models.arrays import Array

_LEVEL = "graph_optimization_level"


def open_session(source: str, options: Mapping[str, str]) -> Answer:
    """Loads the model in `source`. The model runs on one thread with the CPU kernels.

    Args:
        options: session configuration entries, and the attribute `graph_optimization_level` of `SessionOptions`.
    """
    settings = SessionOptions()
    settings.intra_op_num_threads = settings.inter_op_num_threads = 1
    for name, value in options.items():
        if name == _LEVEL:
            settings.graph_optimization_level = GraphOptimizationLevel.__members__[value]
        else:
            settings.add_session_config_entry(name, value)
    session = InferenceSession(_model_in(Path(source)), settings, providers=["CPUExecutionProvider"])
    names = [end.name for end in session.get_inputs()]

    def answer(sample: Sequence[Array]) -> list[Array]:
        return list(session.run(None, dict(zip(names, sample, strict=True))))

    return answer


def _model_in(source: Path) -> str:
    """Returns the path of the model file. An archive is first extracted to a folder in the working directory."""
    with source.open("rb") as file:
        if detect_format(file.read(HEAD_BYTES)) != ZIP:
            return str(source)
    archive, model = archive_of(source.read_bytes()), source
    for name in archive:  # the names were checked, so none leads out of the folder
        path = Path.cwd() / "source" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(archive.read(name))
        model = path if path.suffix == SUFFIX else model
    return str(model)
