"""Creates one network of the zoo, quantized by one tool: the model's file, and its runtime's results for two samples.

Runs in the environment `zoo`:

    python -m benchmarks.models.zoo.make timm:resnet10t ort-static --output resnet10t.onnx

The results are stored beside the file (`maker.save`).
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch  # type: ignore[import-not-found]

from benchmarks.models.zoo.maker import ANSWERED, CALIBRATED, parsed, save
from benchmarks.models.zoo.networks import network

Samples = list[list[torch.Tensor]]
OPSET = 17


def main() -> None:
    arguments = parsed(__doc__, TOOLS)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    model, samples = network(arguments.network)
    with torch.no_grad():
        answer = TOOLS[arguments.tool](model, samples, arguments.output)
        save(arguments.output, ((sample, answer(sample)) for sample in samples[-ANSWERED:]))


Answer = Callable[[list[torch.Tensor]], list[Any]]


def _names(sample: list[torch.Tensor]) -> list[str]:
    return [f"input{index}" for index in range(len(sample))]


def _exported(model: Any, samples: Samples, path: Path, *, dynamo: bool) -> None:
    names = _names(samples[0])
    if dynamo:
        torch.onnx.export(
            model, tuple(samples[0]), str(path), input_names=names, output_names=["output"], dynamo=True,
            external_data=False, verbose=False,
        )  # fmt: skip
        return
    axes = {name: {0: "N"} for name in [*names, "output"]}
    torch.onnx.export(
        model, tuple(samples[0]), str(path), input_names=names, output_names=["output"], dynamic_axes=axes,
        opset_version=OPSET, dynamo=False,
    )  # fmt: skip


def _feeds(samples: Samples) -> Iterator[dict[str, Any]]:
    for sample in samples[:CALIBRATED]:
        yield {name: each.numpy() for name, each in zip(_names(sample), sample, strict=True)}


def _by_onnxruntime(*, dynamo: bool, static: bool, fused: bool = False) -> Callable[[Any, Samples, Path], Answer]:
    """Returns a function that exports a network to ONNX and quantizes it with ONNX Runtime's tools.

    Args:
        dynamo: use torch's newer exporter.
        static: quantize statically; otherwise dynamically.
        fused: first apply ONNX Runtime's transformer optimizer.
    """

    def make(model: Any, samples: Samples, output: Path) -> Answer:
        from onnxruntime.quantization import (
            CalibrationDataReader,
            QuantFormat,
            QuantType,
            quantize_dynamic,
            quantize_static,
        )
        from onnxruntime.quantization.shape_inference import quant_pre_process

        class Reader(CalibrationDataReader):  # type: ignore[misc]
            def __init__(self) -> None:
                self._feeds = _feeds(samples)

            def get_next(self) -> dict[str, Any] | None:
                return next(self._feeds, None)

        with tempfile.TemporaryDirectory() as folder:
            exported, prepared = Path(folder) / "exported.onnx", Path(folder) / "prepared.onnx"
            _exported(model, samples, exported, dynamo=dynamo)
            if fused:
                from onnxruntime.transformers.optimizer import optimize_model

                heads = getattr(model.network.config, "num_attention_heads", 4)
                hidden = getattr(model.network.config, "hidden_size", 64)
                optimize_model(str(exported), "bert", heads, hidden).save_model_to_file(str(prepared))
            else:
                quant_pre_process(str(exported), str(prepared), skip_symbolic_shape=True)
            if static:
                quantize_static(
                    str(prepared), str(output), Reader(), quant_format=QuantFormat.QDQ, per_channel=True,
                    activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8,
                )  # fmt: skip
            else:
                options = {"DefaultTensorType": 1}  # float32, after operators whose types the tools cannot infer
                quantize_dynamic(str(prepared), str(output), weight_type=QuantType.QInt8, extra_options=options)
        return _session(output)

    return make


def _session(path: Path) -> Answer:
    """Opens the session as Octet's witness does (`service/compiler/references`)."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    options.add_session_config_entry("session.qdqisint8allowed", "1")
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])

    def answer(sample: list[torch.Tensor]) -> list[Any]:
        wanted = {end.name for end in session.get_inputs()}
        feeds = zip(_names(sample), sample, strict=True)
        return list(session.run(None, {name: each.numpy() for name, each in feeds if name in wanted}))

    return answer


def _by_nncf(model: Any, samples: Samples, output: Path) -> Answer:
    """Quantizes the ONNX file with NNCF."""
    import nncf  # type: ignore[import-not-found]
    import onnx  # type: ignore[import-not-found]

    with tempfile.TemporaryDirectory() as folder:
        exported = Path(folder) / "exported.onnx"
        _exported(model, samples, exported, dynamo=False)
        loaded = onnx.load(str(exported))
    onnx.save(nncf.quantize(loaded, nncf.Dataset(list(_feeds(samples))), subset_size=CALIBRATED), str(output))
    return _session(output)


def _by_neural_compressor(model: Any, samples: Samples, output: Path) -> Answer:
    """Quantizes statically with onnx-neural-compressor."""
    import onnx
    from onnx_neural_compressor import data_reader  # type: ignore[import-not-found]
    from onnx_neural_compressor.quantization import QuantFormat, quantize  # type: ignore[import-not-found]
    from onnx_neural_compressor.quantization.config import StaticQuantConfig  # type: ignore[import-not-found]

    class Reader(data_reader.CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self.rewind()

        def get_next(self) -> dict[str, Any] | None:
            return next(self._feeds, None)

        def rewind(self) -> None:
            self._feeds = _feeds(samples)

    with tempfile.TemporaryDirectory() as folder:
        exported = Path(folder) / "exported.onnx"
        _exported(model, samples, exported, dynamo=False)
        config = StaticQuantConfig(Reader(), quant_format=QuantFormat.QDQ, per_channel=True)
        quantize(str(exported), str(Path(folder) / "quantized.onnx"), config)
        onnx.save(
            onnx.load(str(Path(folder) / "quantized.onnx")), str(output)
        )  # includes the weights in separate files
    return _session(output)


def _by_fx(model: Any, samples: Samples, output: Path) -> Answer:
    """Quantizes with torch.ao's FX mode, and saves TorchScript."""
    from torch.ao.quantization import get_default_qconfig_mapping  # type: ignore[import-not-found]
    from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx  # type: ignore[import-not-found]

    torch.backends.quantized.engine = "x86"
    inner = model.network
    prepared = prepare_fx(inner, get_default_qconfig_mapping("x86"), tuple(samples[0]))
    for sample in samples[:CALIBRATED]:
        prepared(*sample)
    traced = torch.jit.freeze(torch.jit.trace(convert_fx(prepared), tuple(samples[0])).eval())
    traced.save(str(output))
    return lambda sample: [traced(*sample)]


def _by_pt2e(model: Any, samples: Samples, output: Path) -> Answer:
    """Quantizes with torchao's PT2E and the x86 Inductor quantizer, and saves an exported program."""
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e  # type: ignore[import-not-found]
    from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86  # type: ignore[import-not-found]

    quantizer = x86.X86InductorQuantizer()
    quantizer.set_global(x86.get_default_x86_inductor_quantization_config())
    prepared = prepare_pt2e(torch.export.export(model, tuple(samples[0])).module(), quantizer)
    for sample in samples[:CALIBRATED]:
        prepared(*sample)
    program = torch.export.export(convert_pt2e(prepared), tuple(samples[0]))
    torch.export.save(program, str(output))
    module = program.module()
    return lambda sample: [module(*sample)]


TOOLS: dict[str, Callable[[Any, Samples, Path], Answer]] = {
    "dynamo-dynamic": _by_onnxruntime(dynamo=True, static=False),
    "dynamo-static": _by_onnxruntime(dynamo=True, static=True),
    "fx": _by_fx,
    "neural-compressor": _by_neural_compressor,
    "nncf": _by_nncf,
    "ort-dynamic": _by_onnxruntime(dynamo=False, static=False),
    "ort-fused-dynamic": _by_onnxruntime(dynamo=False, static=False, fused=True),
    "ort-static": _by_onnxruntime(dynamo=False, static=True),
    "pt2e": _by_pt2e,
}


if __name__ == "__main__":
    main()
