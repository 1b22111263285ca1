"""The other tools, and the runtimes of their files. Runs in the peers' environment `quantization`:

python peer.py prepare FLOAT OUTPUT DIM,DIM…   the same ONNX model with inputs of one shape
python peer.py onnxruntime FLOAT CALIBRATION.npy OUTPUT.onnx METHOD
python peer.py nncf FLOAT CALIBRATION.npy OUTPUT.onnx PRESET
python peer.py torchao FLOAT CALIBRATION.npy OUTPUT.pt2 QUANTIZER
python peer.py litert FLOAT.tflite CALIBRATION.npy OUTPUT.tflite RECIPE
python peer.py run INPUTS.npy OUTPUT.npz DECISION MODEL…   each model's decisions, and its distance from the first
python peer.py answers INPUTS.npy OUTPUT.npy MODEL     the model's first output
python peer.py calibrate FLOAT INPUTS.npy METHOD NUMBER   also prints the process's peak memory in bytes

The quantizing commands print their time in seconds.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

Array = Any
Run = Callable[[Array], list[Array]]
_MASK = 0.3  # PaddleOCR's minimum probability of a pixel of text


def _bits(values: Array) -> Array:
    return np.packbits(values.reshape(-1))


DECISIONS: dict[str, Callable[[list[Array]], Array]] = {
    "class": lambda outputs: outputs[0].reshape(-1).argmax(),
    "characters": lambda outputs: outputs[0].argmax(axis=-1)[0],  # [1, T, C]
    "mask": lambda outputs: _bits(outputs[0] > _MASK),
    "best": lambda outputs: outputs[1].reshape(-1).argmax(),  # the box with the best score
    "probable": lambda outputs: outputs[0].reshape(-1) > 0.5,
    "values": lambda outputs: outputs[0].reshape(-1),
}


def _session(model: str, threads: int = 1) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    options.add_session_config_entry("session.qdqisint8allowed", "1")
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def prepare(model: str, output: str, dims: str) -> None:
    import onnx  # type: ignore[import-not-found]
    from onnx import shape_inference, version_converter

    loaded = onnx.load(model)
    (given,) = loaded.graph.input
    for dim, size in zip(given.type.tensor_type.shape.dim, map(int, dims.split(",")), strict=True):
        dim.dim_value = size
    for made in loaded.graph.output:
        made.type.tensor_type.ClearField("shape")
    del loaded.graph.value_info[:]
    (opset,) = (each.version for each in loaded.opset_import if each.domain in ("", "ai.onnx"))
    if opset < 13:  # the first version with per-channel scales
        loaded = version_converter.convert_version(loaded, 13)
    onnx.save(shape_inference.infer_shapes(loaded), output)


def _reader(model: str, inputs: Any) -> Any:
    from onnxruntime.quantization import CalibrationDataReader

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self._name = _session(model).get_inputs()[0].name
            self._rest = iter(inputs)

        def get_next(self) -> dict[str, Any] | None:
            each = next(self._rest, None)
            return None if each is None else {self._name: each[None]}

    return Reader()


def by_onnxruntime(model: str, inputs: str, output: str, method: str) -> None:
    """Quantizes with ONNX Runtime, after its own preparation, as its documentation recommends."""
    from onnxruntime.quantization import CalibrationMethod, QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    started_s, prepared = time.perf_counter(), f"{output}.prepared"
    quant_pre_process(model, prepared)
    quantize_static(
        prepared,
        output,
        _reader(model, np.load(inputs)),
        quant_format=QuantFormat.QDQ,
        activation_type=QuantType.QUInt8,
        weight_type=QuantType.QInt8,
        per_channel=True,
        calibrate_method=CalibrationMethod[method],
    )
    Path(prepared).unlink()
    print(time.perf_counter() - started_s)


def by_nncf(model: str, inputs: str, output: str, preset: str) -> None:
    import nncf  # type: ignore[import-not-found]
    import onnx

    images, started_s = np.load(inputs), time.perf_counter()
    loaded = onnx.load(model)
    name = loaded.graph.input[0].name
    data = nncf.Dataset([{name: image[None]} for image in images])
    made = nncf.quantize(loaded, data, preset=nncf.QuantizationPreset(preset), subset_size=len(images))
    onnx.save(made, output)
    print(time.perf_counter() - started_s)


def by_torchao(model: str, inputs: str, output: str, quantizer: str) -> None:
    """Quantizes the same network, written with PyTorch's operators (`onnx_module`), by PT2E."""
    import onnx
    import torch  # type: ignore[import-not-found]
    from onnx_module import OnnxModule, name_sources  # type: ignore[import-not-found]
    from torchao.quantization.pt2e import (  # type: ignore[import-not-found]
        allow_exported_model_train_eval,
        move_exported_model_to_eval,
    )
    from torchao.quantization.pt2e.quantize_pt2e import (  # type: ignore[import-not-found]
        convert_pt2e,
        prepare_pt2e,
    )
    from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer  # type: ignore[import-not-found]

    images, started_s = torch.from_numpy(np.load(inputs)), time.perf_counter()
    config = x86_inductor_quantizer.get_default_x86_inductor_quantization_config()
    chosen = getattr(x86_inductor_quantizer, quantizer)().set_global(config)
    with torch.no_grad():
        module = OnnxModule(onnx.load(model)).eval()
        _same(module, model, images[:1])
        exported = torch.export.export(module, (images[:1],)).module()
        name_sources(exported)
        prepared = prepare_pt2e(exported, chosen)
        allow_exported_model_train_eval(prepared)
        move_exported_model_to_eval(prepared)
        for image in images:
            prepared(image[None])
        converted = convert_pt2e(prepared)
        if not any("quantize_per" in str(node.target) for node in converted.graph.nodes):
            raise ValueError("the tool quantized no operator")
        made = torch.export.export(converted, (images[:1],))
    torch.export.save(made, output)
    print(time.perf_counter() - started_s)


def _same(module: Any, model: str, image: Any) -> None:
    """Raises ValueError if the module's results differ from the file's."""
    session = _session(model)
    for own, real in zip(module(image), session.run(None, {session.get_inputs()[0].name: image.numpy()}), strict=True):
        if not np.allclose(own.numpy(), real, atol=2e-3 * max(1e-6, float(np.abs(real).max()))):
            raise ValueError("the converted PyTorch module computes other results than the file")


def by_litert(model: str, inputs: str, output: str, recipe: str) -> None:
    from ai_edge_litert.interpreter import Interpreter
    from ai_edge_quantizer import quantizer  # type: ignore[import-not-found]
    from ai_edge_quantizer import recipe as recipes

    images, started_s = np.load(inputs), time.perf_counter()
    # The calibrator passes inputs by signature. For a file without a signature, it passes them by name.
    reader = Interpreter(model)
    signatures = reader.get_signature_list()
    key = next(iter(signatures), None)
    name = signatures[key]["inputs"][0] if key else reader.get_input_details()[0]["name"]
    tool = quantizer.Quantizer(model, getattr(recipes, recipe)())
    seen = tool.calibrate({key: [{name: image[None]} for image in images]})
    Path(output).unlink(missing_ok=True)
    tool.quantize(seen).export_model(output)
    print(time.perf_counter() - started_s)


def runner(model: str) -> Run:
    """Returns a function that runs a file in its tool's runtime: LiteRT, PyTorch, or ONNX Runtime."""
    return {".tflite": _of_litert, ".pt2": _of_torch, ".onnx": _of_onnxruntime}[Path(model).suffix](model)


def _of_onnxruntime(model: str) -> Run:
    session = _session(model)
    name = session.get_inputs()[0].name
    return lambda image: list(session.run(None, {name: image}))


def _of_litert(model: str) -> Run:
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model, num_threads=1)
    interpreter.allocate_tensors()
    (given,), results = interpreter.get_input_details(), interpreter.get_output_details()

    def run(image: Array) -> list[Array]:
        interpreter.set_tensor(given["index"], _stored(image, given))
        interpreter.invoke()
        return [_real(interpreter.get_tensor(each["index"]), each) for each in results]

    return run


def _stored(values: Array, end: Any) -> Array:
    if end["dtype"] == values.dtype:
        return values
    (scale, zero_point), limits = end["quantization"], np.iinfo(end["dtype"])
    return np.clip(np.rint(values / scale) + zero_point, limits.min, limits.max).astype(end["dtype"])


def _real(values: Array, end: Any) -> Array:
    scale, zero_point = end["quantization"]
    return values if values.dtype.kind == "f" else (values.astype(np.float32) - zero_point) * np.float32(scale)


def _of_torch(model: str) -> Run:
    import torch
    import torchao.quantization.pt2e  # type: ignore[import-not-found]  # noqa: F401  its operators

    module = torch.export.load(model).module()

    def run(image: Array) -> list[Array]:
        with torch.no_grad():
            return [made.numpy() for made in module(torch.from_numpy(image))]

    return run


def run(inputs: str, output: str, decision: str, *models: str) -> None:
    images, decide = np.load(inputs, mmap_mode="r"), DECISIONS[decision]
    runners = [runner(model) for model in models]
    sums: Any = 0
    decided: list[list[Any]] = [[] for _ in models]
    for image in images:
        made = [each(np.array(image[None])) for each in runners]
        real = [output.astype(np.float64) for output in made[0]]
        rows = [
            [((wide**2).sum(), ((wide - y.reshape(wide.shape)) ** 2).sum()) for wide, y in zip(real, each, strict=True)]
            for each in made
        ]
        sums = sums + np.array(rows)
        for found, answer in zip(decided, made, strict=True):
            found.append(decide(answer))
    named: dict[str, Any] = {f"decided_{index}": np.array(found) for index, found in enumerate(decided)}
    np.savez(output, sums=sums, **named)


def answers(inputs: str, output: str, model: str) -> None:
    each = runner(model)
    np.save(output, np.concatenate([each(image[None])[0] for image in np.load(inputs)]))


def calibrate(model: str, inputs: str, method: str, number: str) -> None:
    """Runs only ONNX Runtime's calibrator: no file is written, and its sessions are created before the clock starts."""
    from onnxruntime.quantization.calibrate import CalibrationMethod, create_calibrator

    images = np.load(inputs, mmap_mode="r")[: int(number)]
    calibrator = create_calibrator(
        model, augmented_model_path=f"{inputs}.augmented.onnx", calibrate_method=CalibrationMethod[method]
    )
    started_s = time.perf_counter()
    calibrator.collect_data(_reader(model, images))
    calibrator.compute_data()
    taken_s = time.perf_counter() - started_s
    peak = re.search(r"VmHWM:\s*(\d+) kB", Path("/proc/self/status").read_text())
    assert peak
    print(int(peak[1]) * 1024, taken_s)


if __name__ == "__main__":
    commands: dict[str, Callable[..., None]] = {
        "prepare": prepare,
        "onnxruntime": by_onnxruntime,
        "nncf": by_nncf,
        "torchao": by_torchao,
        "litert": by_litert,
        "run": run,
        "answers": answers,
        "calibrate": calibrate,
    }
    commands[sys.argv[1]](*(str(Path(each)) if Path(each).exists() else each for each in sys.argv[2:]))
