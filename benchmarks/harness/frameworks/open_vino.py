"""OpenVINO's CPU plugin, for latency.

Options: `precision` is the type in which it computes operators that are not in integers: `f32` or `bf16`.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import openvino  # type: ignore[import-not-found]

from benchmarks.harness.frameworks import Array, Job, Loaded, random_input

_HEAVY = ("Convolution", "GroupConvolution", "FullyConnected", "MatMul")


def load(job: Job) -> Loaded:
    core = openvino.Core()
    model = core.read_model(job.path)
    given = job.given()
    if model.is_dynamic():
        shapes = {port: _static(port, given, job.batch) for port in model.inputs}
        model.reshape(shapes)
    settings = {
        "PERFORMANCE_HINT": "LATENCY",
        "NUM_STREAMS": "1",
        "INFERENCE_NUM_THREADS": job.threads,
        "INFERENCE_PRECISION_HINT": job.options["precision"],
    }
    compiled = core.compile_model(model, "CPU", settings)
    request = compiled.create_infer_request()
    for index, port in enumerate(compiled.inputs):
        value = _given(port, given)
        if value is None:
            value = random_input(tuple(port.shape), port.element_type.to_dtype(), index)
        request.set_input_tensor(index, openvino.Tensor(value, shared_memory=False))
    outputs = range(len(compiled.outputs))
    return Loaded(
        _bare(request),
        lambda: [request.get_output_tensor(index).data.copy() for index in outputs],
        {
            "version": openvino.__version__,
            "precision": str(compiled.get_property("INFERENCE_PRECISION_HINT")),
            "layers": _layers(compiled),
        },
    )


def _bare(request: Any) -> Any:
    """Returns the binding's own call, without the checks and the dictionary that its wrapper adds to each call."""
    infer = super(type(request), request).infer
    return lambda: infer({}, share_outputs=True, decode_strings=False)


def _given(port: Any, given: dict[str, Array]) -> Array | None:
    return next((given[name] for name in port.names if name in given), None)


def _static(port: Any, given: dict[str, Array], batch: int) -> list[int]:
    value = _given(port, given)
    if value is not None:
        return list(value.shape)
    return [int(size.get_length()) if size.is_static else batch for size in port.partial_shape]


def _layers(compiled: Any) -> dict[str, int]:
    """Counts the heavy layers by operator and precision, as in `Convolution u8`."""
    found: Counter[str] = Counter()
    for operator in compiled.get_runtime_model().get_ops():
        about = operator.get_rt_info()
        kind, precision = (str(about[key].astype(str)) for key in ("layerType", "runtimePrecision"))
        if kind in _HEAVY:
            found[f"{kind} {precision}"] += 1
    return dict(found)
