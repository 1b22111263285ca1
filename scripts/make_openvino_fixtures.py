"""Creates the OpenVINO models of tests/fixtures/openvino: small networks that NNCF quantizes, with some inputs and
OpenVINO's outputs for them.

OpenVINO and NNCF need an environment of their own:

    python -m venv DIR && DIR/bin/pip install openvino==2026.4.1 nncf==3.4.0
    DIR/bin/python scripts/make_openvino_fixtures.py tests/fixtures/openvino/networks.zip [NAME...]

The archive has three files for each network: NAME.xml, NAME.bin and NAME.npz, which has the inputs `x0`, `x1`, … and
the outputs `y0_0`, … (sample, output). Weights are random and seeded. OpenVINO computes convolutions with oneDNN's code
for the processor at hand, so create the files on a machine with AVX-512 VNNI.
"""

from __future__ import annotations

import argparse
import io
import logging
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import nncf  # type: ignore[import-not-found]
import numpy as np
import openvino as ov  # type: ignore[import-not-found]
from openvino import opset13 as op

SAMPLES = 3
PROPERTIES = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 1}
IMAGE = (1, 3, 8, 8)
Built = tuple[Any, Sequence[Any]]  # the input and the outputs of a network


def shape_of(x: Any) -> list[int]:
    """Returns the shape of an output, or of the first output of a node."""
    return list(x.get_shape() if isinstance(x, ov.Output) else x.get_output_shape(0))


class Builder:
    """Creates layers with random weights."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def input(self, shape: Sequence[int] = IMAGE, dtype: Any = np.float32) -> Any:
        return op.parameter(list(shape), dtype, name="data")

    def number(self, value: Any, dtype: Any = np.float32) -> Any:
        return op.constant(np.array(value, dtype))

    def places(self, *values: int) -> Any:
        return op.constant(np.array(values, np.int64))

    def weights(self, *shape: int, size: float = 0.3) -> Any:
        rows = self.rng.uniform(0.3, 2, (shape[0],) + (1,) * (len(shape) - 1))
        return op.constant((self.rng.normal(0, size, shape) * rows).astype(np.float32))

    def row(self, *shape: int) -> Any:
        return self.number(self.rng.normal(0, 0.3, shape))

    def conv(
        self, x: Any, filters: int, kernel: int = 3, stride: int = 1, dilation: int = 1, auto: str = "explicit"
    ) -> Any:
        pad, channels = dilation * (kernel // 2), shape_of(x)[1]
        filters_of = self.weights(filters, channels, kernel, kernel)
        y = op.convolution(x, filters_of, [stride] * 2, [pad] * 2, [pad] * 2, [dilation] * 2, auto)
        return op.add(y, self.row(1, filters, 1, 1))

    def grouped(self, x: Any, groups: int) -> Any:
        channels = shape_of(x)[1]
        filters = self.weights(groups, channels // groups, channels // groups, 3, 3, size=0.5)
        y = op.group_convolution(x, filters, [1, 1], [1, 1], [1, 1], [1, 1])
        return op.add(y, self.row(1, channels, 1, 1))

    def dense(self, x: Any, units: int, *, transposed: bool = True) -> Any:
        depth = shape_of(x)[-1]
        weights = self.weights(*((units, depth) if transposed else (depth, units)))
        return op.add(op.matmul(x, weights, False, transposed), self.row(1, units))


def residual(b: Builder) -> Built:
    x = b.input()
    stem = op.relu(b.conv(x, 8))
    inner = op.relu(b.conv(stem, 8))
    total = op.relu(op.add(b.conv(inner, 8), stem))
    return x, [op.reduce_mean(b.conv(total, 6), b.places(2, 3), False)]


def mobilenet(b: Builder) -> Built:
    x = b.input()
    stem = op.clamp(b.conv(x, 8, stride=2), 0, 6)
    inner = b.conv(op.clamp(b.grouped(stem, 8), 0, 6), 8, kernel=1)
    return x, [op.reduce_mean(op.add(inner, stem), b.places(2, 3), True)]


def dense(b: Builder) -> Built:
    x = b.input((2, 16))
    return x, [op.softmax(b.dense(op.relu(b.dense(x, 8)), 5, transposed=False), 1)]


def pools(b: Builder) -> Built:
    x = b.input()
    small = op.max_pool(op.relu(b.conv(x, 8)), [2, 2], [1, 1], [0, 0], [0, 0], [2, 2]).output(0)
    mean = op.avg_pool(b.conv(small, 8), [2, 2], [0, 0], [0, 0], [2, 2], True)
    return x, [b.conv(mean, 4)]


def inception(b: Builder) -> Built:
    x = b.input()
    stem = op.relu(b.conv(x, 8))
    return x, [b.conv(op.concat([op.relu(b.conv(stem, 4)), op.relu(b.conv(stem, 4, kernel=1)), stem], 1), 6)]


def activations(b: Builder) -> Built:
    x = b.input()
    y = op.prelu(b.conv(op.elu(b.conv(x, 8), 1.0), 8), b.number(b.rng.uniform(0, 0.3, 8)))
    y = op.hswish(b.conv(op.swish(b.conv(op.gelu(y, "ERF"), 4)), 4))
    return x, [op.sigmoid(b.conv(op.mish(y), 4))]


def squeeze_excite(b: Builder) -> Built:
    x = b.input()
    y = op.relu(b.conv(x, 8))
    gate = b.conv(op.relu(b.conv(op.reduce_mean(y, b.places(2, 3), True), 4, kernel=1)), 8, kernel=1)
    return x, [b.conv(op.multiply(y, op.sigmoid(gate)), 4)]


def padded(b: Builder) -> Built:
    x = b.input((1, 3, 9, 9))
    return x, [b.conv(op.relu(b.conv(x, 8, stride=2, auto="same_upper")), 4, dilation=2)]


def resized(b: Builder) -> Built:
    x = b.input()
    y = op.relu(b.conv(x, 8))
    down, axes, size = op.relu(b.conv(y, 8, stride=2)), b.places(2, 3), b.places(8, 8)
    options = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    near = op.interpolate(down, size, "nearest", "sizes", axes=axes, **options)
    linear = op.interpolate(down, size, "linear_onnx", "sizes", axes=axes)
    grown = op.convolution_backprop_data(down, b.weights(8, 4, 2, 2), [2, 2])
    return x, [b.conv(op.concat([y, near, linear, grown], 1), 4)]


def attention(b: Builder) -> Built:
    x = b.input((2, 6, 16))
    q, k, v = (b.dense(x, 16) for _ in range(3))
    scores = op.softmax(op.multiply(op.matmul(q, k, False, True), b.number(0.25)), 2)
    y = op.add(b.dense(op.matmul(scores, v, False, False), 16), x)
    normal = op.mvn(y, b.places(2), True, 1e-5, "inside_sqrt")
    return x, [b.dense(op.multiply(normal, b.number(b.rng.uniform(0.5, 1.5, 16))), 8)]


def shuffle(b: Builder) -> Built:
    x = b.input()
    apart = op.reshape(op.relu(b.conv(x, 8)), b.places(1, 2, 4, 8, 8), False)
    y = op.reshape(op.transpose(apart, b.places(0, 2, 1, 3, 4)), b.places(1, 8, 8, 8), False)
    one, other = op.split(y, b.number(1, np.int64), 2).outputs()
    return x, [op.concat([one, op.relu(other), b.grouped(y, 2)], 1)]


def rows(b: Builder) -> Built:
    x = b.input((1, 3, 16))
    y = op.relu(op.add(op.convolution(x, b.weights(8, 3, 3), [1], [1], [1], [1]), b.row(1, 8, 1)))
    return x, [op.convolution(y, b.weights(4, 8, 3), [2], [0], [0], [1])]


def detector(b: Builder) -> Built:
    x = b.input()
    near = op.relu(b.conv(x, 8, stride=2))
    far = op.relu(b.conv(near, 8, stride=2))
    heads = [
        op.reshape(op.transpose(b.conv(each, 4), b.places(0, 2, 3, 1)), b.places(1, -1, 4), False)
        for each in (near, far)
    ]
    return x, [op.concat(heads, 1), op.softmax(op.concat(heads, 1), 2)]


def preprocess(b: Builder) -> Built:
    x = b.input((1, 8, 8, 3), np.uint8)
    y = op.transpose(op.convert(x, "f32"), b.places(0, 3, 1, 2))
    y = op.subtract(y, b.number(b.rng.uniform(100, 130, (1, 3, 1, 1))))
    y = op.divide(y, b.number(b.rng.uniform(50, 60, (1, 3, 1, 1))))
    return x, [b.conv(op.relu(b.conv(y, 8)), 4)]


NETWORKS: tuple[Callable[[Builder], Built], ...] = (
    residual, mobilenet, dense, pools, inception, activations, squeeze_excite, padded, resized, attention, shuffle,
    rows, detector, preprocess,
)  # fmt: skip
COMPRESSED = {
    "int8_asym": {},
    "int8_sym": {},
    "int4_sym": {"group_size": 8, "all_layers": True, "ratio": 1.0},
    "int4_asym": {"group_size": 8, "all_layers": True, "ratio": 1.0},
}


def variants(make: Callable[[Builder], Built]) -> dict[str, Any]:
    """Returns the models of a network by name: quantized with two presets, or with compressed weights."""
    builder = Builder(len(make.__name__))
    x, outputs = make(builder)
    model = ov.Model(list(outputs), [x], make.__name__)
    data = [samples(builder, x) for _ in range(20)]
    found = {}
    for preset in ("MIXED", "PERFORMANCE"):
        options = {"model_type": nncf.ModelType.TRANSFORMER} if make is attention else {}
        found[f"{make.__name__}_{preset.lower()}"] = nncf.quantize(
            model.clone(),
            nncf.Dataset(data),
            subset_size=20,
            preset=getattr(nncf.QuantizationPreset, preset),
            **options,
        )
    if make is attention:
        for mode, options in COMPRESSED.items():
            how = getattr(nncf.CompressWeightsMode, mode.upper())
            found[f"attention_{mode}"] = nncf.compress_weights(model.clone(), mode=how, **options)
    return found


def samples(builder: Builder, x: Any) -> Any:
    shape = list(x.get_output_shape(0))
    if x.get_element_type() == ov.Type.u8:
        return builder.rng.integers(0, 256, shape).astype(np.uint8)
    return builder.rng.normal(0, 1, shape).astype(np.float32)


def add(archive: zipfile.ZipFile, name: str, model: Any) -> None:
    """Adds the files of a model to the archive, and OpenVINO's outputs for random inputs."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{name}.xml"
        ov.save_model(model, str(path), compress_to_fp16=False)
        core = ov.Core()
        compiled = core.compile_model(core.read_model(str(path)), "CPU", PROPERTIES)
        builder, arrays = Builder(1), {}
        for index in range(SAMPLES):
            arrays[f"x{index}"] = samples(builder, model.inputs[0].get_node())
            results = compiled(arrays[f"x{index}"])
            arrays |= {f"y{index}_{at}": np.array(results[at]) for at in range(len(compiled.outputs))}
        saved = io.BytesIO()
        np.savez_compressed(saved, **arrays)
        files = {".xml": path.read_bytes(), ".bin": path.with_suffix(".bin").read_bytes(), ".npz": saved.getvalue()}
    for suffix, data in files.items():
        archive.writestr(zipfile.ZipInfo(name + suffix), data, zipfile.ZIP_DEFLATED, 9)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("archive", type=Path)
    parser.add_argument("names", nargs="*", help="networks to make, in place of all")
    given = parser.parse_args()
    nncf.set_log_level(logging.ERROR)
    with zipfile.ZipFile(given.archive, "w") as archive:
        for make in NETWORKS:
            if not given.names or make.__name__ in given.names:
                for name, model in variants(make).items():
                    add(archive, name, model)


if __name__ == "__main__":
    main()
