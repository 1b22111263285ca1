"""Runs OpenVINO's models in OpenVINO. This module is loaded in the environment of OpenVINO, which has neither TVM nor
this project's other requirements.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from service.compiler.importers.openvino.file.package import unpack
from service.compiler.references import Answer
from service.core.models.arrays import Array


def open_session(source: str, options: Mapping[str, str]) -> Answer:
    """Loads the model in the archive `source`. The model runs on one thread of the CPU.

    Args:
        options: properties of the CPU plugin.
    """
    import openvino  # type: ignore[import-not-found]

    graph, weights = unpack(Path(source).read_bytes())
    file = Path.cwd() / "model.xml"
    file.write_bytes(graph)
    file.with_suffix(".bin").write_bytes(weights)
    core = openvino.Core()
    model = core.read_model(str(file))
    properties = {"INFERENCE_NUM_THREADS": "1", "NUM_STREAMS": "1", **options}
    shapes: list[tuple[int, ...]] = []
    compiled = None

    def answer(sample: Sequence[Array]) -> list[Array]:
        nonlocal compiled, shapes
        given = [value.shape for value in sample]
        if compiled is None or given != shapes:
            if any(end.partial_shape.is_dynamic for end in model.inputs):
                model.reshape({end: list(shape) for end, shape in zip(model.inputs, given, strict=True)})
            compiled, shapes = core.compile_model(model, "CPU", properties), given
        results = compiled(list(sample))
        return [results[index] for index in range(len(compiled.outputs))]

    return answer
