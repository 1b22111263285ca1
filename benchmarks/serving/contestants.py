"""The models that are served, and the servers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness.home import CHECKOUT, Home
from benchmarks.models.catalog import Row, rows_named

OCTET, BARE, FLOOR, GRPC = "octet", "bare", "floor", "octet-grpc"
NUMERICS = "xnnpack"
_FRAMEWORKS = {
    "litert": "LiteRT",
    "onnxruntime": "ONNX Runtime",
    "openvino": "OpenVINO",
    "openvino-bf16": "OpenVINO, bf16",
}


@dataclass(frozen=True)
class Served:
    """A model, and the runtimes that may compute it in a peer's server.

    Attributes:
        name: its row in the catalog.
        frameworks: frameworks with the format of their fastest file in the contest; the fastest framework first.
        long: factor for the duration of its turns, so that a slow model gets enough responses for a 99th percentile.
        example: for a model that is not in the catalog, its file relative to the checkout.
    """

    name: str
    frameworks: Sequence[tuple[str, str]]
    long: float = 1.0
    example: str = ""

    @property
    def row(self) -> Row:
        return Row(self.name, "digits, int8", {}) if self.example else rows_named([self.name])[0]

    def path(self, home: Home) -> Path:
        """Returns the model's file. Raises RuntimeError if it does not exist."""
        path = CHECKOUT / self.example if self.example else home.model(self.row.files["tflite"])
        if path is None:
            raise RuntimeError(f"{self.row.files['tflite']} is missing; run: python -m benchmarks.models")
        return path


SERVED: Sequence[Served] = (
    Served("mobilenet_v2_1.0_224_quant", [("litert", "tflite"), ("openvino-bf16", "tflite")]),
    Served("mobilenet_v2", [("openvino", "onnx"), ("litert", "tflite"), ("onnxruntime", "onnx")]),
    Served("resnet50", [("openvino", "tflite"), ("onnxruntime", "onnx"), ("litert", "tflite")], long=2.0),
)
DIGITS = Served("digits", [], example="examples/digits_int8.tflite")
OVERLOADED = (SERVED[-1], SERVED[0], DIGITS)
LIGHT, HEAVY = DIGITS, SERVED[-1]


@dataclass(frozen=True)
class Peer:
    """A server: the module of `peers` that starts it, and the runtime in it.

    Attributes:
        speaks_v2: true if it uses the Open Inference Protocol, like Octet, and not the raw image.
    """

    name: str
    title: str
    environment: str
    module: str
    framework: str
    file: str
    speaks_v2: bool = False


# Each server runs the framework that is fastest on the model. FastAPI is measured with each framework.
_SERVERS = (
    ("mlserver", "MLServer", "ml_server"),
    ("bentoml", "BentoML", "bento_ml"),
    ("ray", "Ray Serve", "ray_serve"),
    ("triton", "Triton", "triton"),
)


def peers_for(served: Served) -> Iterator[Peer]:
    for framework, file in served.frameworks:
        title = f"FastAPI, {_FRAMEWORKS[framework]}"
        yield Peer(f"fastapi-{framework}", title, "fastapi", "plain_fastapi", framework, file)
    framework, file = served.frameworks[0]
    for name, title, module in _SERVERS:
        speaks_v2 = name == "triton"
        yield Peer(name, f"{title}, {_FRAMEWORKS[framework]}", name, module, framework, file, speaks_v2)
