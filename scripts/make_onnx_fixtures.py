"""Creates the ONNX models of tests/fixtures/onnx: networks that PyTorch exported and ONNX Runtime quantized, and
the cases of ONNX's own test suite for quantized operators.

Two environments, with the versions noted in the files' producers:

    TORCH/bin/python scripts/make_onnx_fixtures.py export FOLDER            # torch, onnx
    ORT/bin/python scripts/make_onnx_fixtures.py quantize FOLDER tests/fixtures/onnx    # onnxruntime, onnx

The weights are random, as the tests only compare arithmetic.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

TOKENS, WORDS, WIDTH, HEADS = 12, 40, 32, 4
SIDE = 32
OPSET = 17
OLDEST, NEWEST = 10, 25  # the operator sets that Octet reads; the suite's cases use the newest one
QUANTIZED = (
    "ConvInteger",
    "DequantizeLinear",
    "DynamicQuantizeLinear",
    "MatMulInteger",
    "QLinearConv",
    "QLinearMatMul",
    "QuantizeLinear",
)
# Operators between quantized ones in current exports.
BETWEEN = (
    *("Attention", "BatchNormalization", "Celu", "Clip", "Cos", "CumSum", "Einsum", "GatherElements", "GatherND"),
    *("Gelu", "GroupNormalization", "InstanceNormalization", "IsInf", "IsNaN", "LayerNormalization", "LpNormalization"),
    *("MeanVarianceNormalization", "Mish", "Mod", "OneHot", "RMSNormalization", "Resize", "RotaryEmbedding"),
    *("ScatterElements", "ScatterND", "Selu", "Sign", "Sin", "Softsign", "Sum", "Swish", "ThresholdedRelu", "TopK"),
    *("Trilu", "Xor"),
)
SENT = tuple(name for name in BETWEEN if name != "Resize")  # operators of which more than the first input may vary
SENDABLE = ("float32", "int64", "int32", "int8", "uint8", "bool")


def export(folder: Path) -> None:
    """Exports the float networks: `bert.onnx`, `mobilenet_v3.onnx`."""
    import torch  # type: ignore[import-not-found]
    from torch import nn

    torch.manual_seed(7)

    class Attention(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.query, self.key, self.value, self.output = (nn.Linear(WIDTH, WIDTH) for _ in range(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            def heads(rows: torch.Tensor) -> torch.Tensor:
                return rows.view(-1, TOKENS, HEADS, WIDTH // HEADS).transpose(1, 2)

            query, key, value = heads(self.query(x)), heads(self.key(x)), heads(self.value(x))
            scores = torch.softmax(query @ key.transpose(2, 3) / (WIDTH // HEADS) ** 0.5, -1)
            return self.output((scores @ value).transpose(1, 2).reshape(-1, TOKENS, WIDTH))

    class Layer(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.attention = Attention()
            self.grow, self.shrink = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)
            self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.first(x + self.attention(x))
            return self.second(x + self.shrink(nn.functional.gelu(self.grow(x))))

    class Bert(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(TOKENS, WIDTH)
            self.norm = nn.LayerNorm(WIDTH)
            self.layers = nn.ModuleList(Layer() for _ in range(2))
            self.pooler, self.classifier = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 5)

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            x = self.norm(self.words(tokens) + self.places(torch.arange(TOKENS)))
            for layer in self.layers:
                x = layer(x)
            return self.classifier(torch.tanh(self.pooler(x[:, 0])))

    def normalized(
        channels: int, filters: int, size: int, act: nn.Module, stride: int = 1, groups: int = 1
    ) -> list[Any]:
        norm = nn.BatchNorm2d(filters)
        nn.init.uniform_(norm.running_mean, -0.5, 0.5)
        nn.init.uniform_(norm.running_var, 0.5, 1.5)
        return [nn.Conv2d(channels, filters, size, stride, size // 2, groups=groups, bias=False), norm, act]

    class Gate(nn.Module):  # type: ignore[misc]
        """Squeeze and excitation."""

        def __init__(self, channels: int) -> None:
            super().__init__()
            less = channels // 4
            self.scale = nn.Sequential(
                nn.AdaptiveAvgPool2d(1), nn.Conv2d(channels, less, 1), nn.ReLU(), nn.Conv2d(less, channels, 1)
            )

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * nn.functional.hardsigmoid(self.scale(x))

    class Block(nn.Module):  # type: ignore[misc]
        """An inverted residual."""

        def __init__(self, channels: int, size: int, wide: int, out: int, *, gate: bool, act: Any, stride: int) -> None:
            super().__init__()
            self.body = nn.Sequential(
                *normalized(channels, wide, 1, act()),
                *normalized(wide, wide, size, act(), stride, groups=wide),
                *([Gate(wide)] if gate else []),
                *normalized(wide, out, 1, nn.Identity()),
            )
            self.residual = stride == 1 and channels == out

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + self.body(x) if self.residual else self.body(x)

    mobile = nn.Sequential(
        *normalized(3, 8, 3, nn.Hardswish(), 2),
        Block(8, 3, 8, 8, gate=True, act=nn.ReLU, stride=1),
        Block(8, 3, 24, 12, gate=False, act=nn.ReLU, stride=2),
        Block(12, 5, 40, 16, gate=True, act=nn.Hardswish, stride=2),
        Block(16, 5, 40, 16, gate=True, act=nn.Hardswish, stride=1),
        *normalized(16, 48, 1, nn.Hardswish()),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(48, 48),
        nn.Hardswish(),
        nn.Linear(48, 10),
    )
    for module in mobile.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            nn.init.kaiming_normal_(module.weight)  # otherwise every picture has the same result
    inputs = {"bert": torch.zeros(1, TOKENS, dtype=torch.int64), "mobilenet_v3": torch.zeros(1, 3, SIDE, SIDE)}
    for name, network in (("bert", Bert()), ("mobilenet_v3", mobile)):
        torch.onnx.export(
            network.eval(),
            (inputs[name],),
            str(folder / f"{name}.onnx"),
            input_names=["input"],
            output_names=["output"],
            dynamic_axes={"input": {0: "batch"}, "output": {0: "batch"}},
            opset_version=OPSET,
            dynamo=False,
        )


def quantize(folder: Path, target: Path) -> None:
    """Quantizes each network statically, and dynamically."""
    from onnxruntime.quantization import (
        CalibrationDataReader,
        QuantFormat,
        QuantType,
        quantize_dynamic,
        quantize_static,
    )
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class Samples(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self, name: str) -> None:
            self._inputs = _samples(name)

        def get_next(self) -> dict[str, Any] | None:
            return next(self._inputs, None)

    for name in ("bert", "mobilenet_v3"):
        with tempfile.TemporaryDirectory() as scratch:
            prepared = str(Path(scratch) / "prepared.onnx")
            quant_pre_process(str(folder / f"{name}.onnx"), prepared, skip_symbolic_shape=True)
            static = {"activation_type": QuantType.QUInt8, "weight_type": QuantType.QInt8, "per_channel": True}
            for suffix, layout in (("qdq", QuantFormat.QDQ), ("qoperator", QuantFormat.QOperator)):
                quantize_static(
                    prepared, str(target / f"{name}.{suffix}.onnx"), Samples(name), quant_format=layout, **static
                )
            quantize_dynamic(prepared, str(target / f"{name}.dynamic.onnx"), weight_type=QuantType.QUInt8)


def node_cases(target: Path) -> None:
    """ONNX's own cases of one operator each. Of quantized operators, every input except the first becomes a constant,
    as in models. Of other operators, integer inputs and empty inputs become constants."""
    from onnx import numpy_helper  # type: ignore[import-not-found]
    from onnx.backend.test.case.node import collect_testcases  # type: ignore[import-not-found]

    arrays: dict[str, Any] = {}
    for case in collect_testcases(None):
        model = case.model
        kinds = [node.op_type for node in model.graph.node]
        if len(kinds) != 1 or kinds[0] not in QUANTIZED + BETWEEN:
            continue
        inputs, outputs = case.data_sets[0]
        if kinds[0] in BETWEEN and not _is_taken(model, inputs, outputs):
            continue
        model.opset_import[0].version = min(model.opset_import[0].version, NEWEST)
        pairs = list(zip(model.graph.input, inputs, strict=True))
        sent = [inputs[0]]
        for end, value in pairs[1:]:
            if kinds[0] in SENT and getattr(value, "dtype", None) in (np.float32, bool) and value.size:
                sent.append(value)
                continue
            as_proto = value if hasattr(value, "data_type") else numpy_helper.from_array(value)
            as_proto.name = end.name
            model.graph.initializer.append(as_proto)
            model.graph.input.remove(end)
        arrays[f"{case.name}.model"] = np.frombuffer(model.SerializeToString(), np.uint8)
        arrays |= {f"{case.name}.input{index}": _plain(value) for index, value in enumerate(sent)}
        arrays |= {f"{case.name}.output{index}": _plain(value) for index, value in enumerate(outputs)}
    np.savez_compressed(target / "node_cases.npz", **arrays)


def _is_taken(model: Any, inputs: Any, outputs: Any) -> bool:
    """Returns true if a case is small, and has one output, a supported operator set, and types that can be sent."""
    values = [*inputs, *outputs]
    plain = all(isinstance(value, np.ndarray) and value.dtype.name in SENDABLE for value in values)
    readable = model.opset_import[0].version >= OLDEST and (len(outputs) == 1 or model.graph.node[0].op_type == "TopK")
    return plain and readable and sum(value.nbytes for value in values) <= 1 << 14


def _plain(value: Any) -> Any:
    """Returns elements as NumPy has them; those of types that NumPy lacks, 4 bits or float8, as bytes."""
    from onnx import numpy_helper

    array = numpy_helper.to_array(value) if hasattr(value, "data_type") else np.asarray(value)
    return array if array.dtype.kind in "biuf" and array.dtype.isbuiltin == 1 else array.view(np.uint8)


def _samples(name: str) -> Iterator[dict[str, Any]]:
    rng = np.random.default_rng(3)
    for _ in range(16):
        if name == "bert":
            yield {"input": rng.integers(0, WORDS, (1, TOKENS))}
        else:
            yield {"input": rng.uniform(-2, 2, (1, 3, SIDE, SIDE)).astype(np.float32)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    steps = parser.add_subparsers(required=True, dest="step")
    steps.add_parser("export").add_argument("folder", type=Path)
    second = steps.add_parser("quantize")
    second.add_argument("folder", type=Path)
    second.add_argument("target", type=Path)
    arguments = parser.parse_args()
    if arguments.step == "export":
        export(arguments.folder)
    else:
        quantize(arguments.folder, arguments.target)
        node_cases(arguments.target)


if __name__ == "__main__":
    main()
