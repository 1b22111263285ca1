"""The runtimes in the peers' servers: map the bytes of one image to the bytes of the scores, on one thread.

The body is the same for all, [1, 224, 224, 3] of one byte each. A TFLite file uses it unchanged; an ONNX file needs [1,
3, 224, 224] float32, so the conversion real = byte / 127.5 - 1 is part of the call: within the graph if the framework
can put it there (OpenVINO), in NumPy otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Predict = Callable[[bytes], bytes]

IMAGE = (1, 224, 224, 3)
_HALF = 127.5


def load(runtime: str, path: str) -> Predict:
    """Loads a model. Raises KeyError for a name that is not in `RUNTIMES`."""
    return RUNTIMES[runtime](path)


def _litert(path: str) -> Predict:
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(path, num_threads=1)
    interpreter.allocate_tensors()
    (given,), (result,) = interpreter.get_input_details(), interpreter.get_output_details()

    def predict(body: bytes) -> bytes:
        interpreter.set_tensor(given["index"], np.frombuffer(body, given["dtype"]).reshape(given["shape"]))
        interpreter.invoke()
        scores: bytes = interpreter.get_tensor(result["index"]).tobytes()
        return scores

    return predict


def _onnxruntime(path: str) -> Predict:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.add_session_config_entry("session.set_denormal_as_zero", "1")
    options.add_free_dimension_override_by_name("N", 1)
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    (given,) = session.get_inputs()
    image = np.empty((1, 3, 224, 224), np.float32)

    def predict(body: bytes) -> bytes:
        np.divide(np.frombuffer(body, np.uint8).reshape(IMAGE).transpose(0, 3, 1, 2), np.float32(_HALF), out=image)
        np.subtract(image, np.float32(1), out=image)
        scores: bytes = session.run(None, {given.name: image})[0].tobytes()
        return scores

    return predict


def _openvino(precision: str) -> Callable[[str], Predict]:
    def load_openvino(path: str) -> Predict:
        import openvino  # type: ignore[import-not-found]

        core = openvino.Core()
        model = core.read_model(path)
        if path.endswith(".onnx"):
            model = _taking_bytes(model)
        elif model.is_dynamic():
            model.reshape(list(IMAGE))
        settings: dict[str, Any] = {"PERFORMANCE_HINT": "LATENCY", "NUM_STREAMS": "1", "INFERENCE_NUM_THREADS": 1}
        compiled = core.compile_model(model, "CPU", settings | {"INFERENCE_PRECISION_HINT": precision})
        request = compiled.create_infer_request()
        image, scores = request.get_input_tensor(0).data, request.get_output_tensor(0)

        def predict(body: bytes) -> bytes:
            image[...] = np.frombuffer(body, image.dtype).reshape(IMAGE)
            request.infer(share_outputs=True)
            result: bytes = scores.data.tobytes()
            return result

        return predict

    return load_openvino


def _taking_bytes(model: Any) -> Any:
    """Returns the network preceded by the conversion of its input, which OpenVINO fuses with the next operator."""
    import openvino

    model.reshape([1, 3, 224, 224])
    steps = openvino.preprocess.PrePostProcessor(model)
    steps.input().tensor().set_element_type(openvino.Type.u8).set_layout(openvino.Layout("NHWC"))
    steps.input().preprocess().convert_element_type(openvino.Type.f32).mean(_HALF).scale(_HALF)
    steps.input().model().set_layout(openvino.Layout("NCHW"))
    return steps.build()


RUNTIMES: dict[str, Callable[[str], Predict]] = {
    "litert": _litert,
    "onnxruntime": _onnxruntime,
    "openvino": _openvino("f32"),
    "openvino-bf16": _openvino("bf16"),
}
