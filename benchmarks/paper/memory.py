"""Figure 6 of Jain et al.: the memory of weights and activations, compared with float32, counted as in
`benchmarks.memory`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

from benchmarks.harness.home import Home
from benchmarks.memory.__main__ import compiled, in_float32
from benchmarks.paper.store import Measurement, Run
from service.core.target import detect_host

PART = "memory"
_MODELS = (
    *("resnet50.int8", "mobilenet_v2.int8", "mobilenet_v2_1.0_224_quant", "tf2_mobilenet_v2_1.0_224_ptq"),
    *("mobilenet_v1_0.25_128_quant", "pretrainedResnet_quant", "kws_ref_model"),
)


def measure(home: Home, run: Run) -> Iterator[Measurement]:
    """Compiles each model whose file exists for this machine, and yields its sizes in bytes; prints the others."""
    target = detect_host().target.name
    for model in _MODELS:
        path = home.model(f"tflite/{model}.tflite")
        if path is None:
            print(f"{model}: left out, tflite/{model}.tflite is missing; set OCTET_TEST_DATA", flush=True)
            continue
        with tempfile.TemporaryDirectory(prefix="octet-paper-") as scratch:
            plan = compiled(path, Path(scratch, "artifact")).plan
        float_weights, float_activations = in_float32(path)
        values = {
            "weights": plan.constant_bytes,
            "activations": plan.arena_bytes,
            "float_weights": float_weights,
            "float_activations": float_activations,
        }
        print(f"{model}, {target}: {values}", flush=True)
        yield run.measurement(PART, (model, target), values, {"octet": version("octet-serve")})
