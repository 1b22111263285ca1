"""Table II of Jain et al.: the accuracy of trained, already quantized models in their framework and in Octet, by
`octet.evaluate`.

The photographs are those of the tests (`OCTET_TEST_DATA`); both runtimes get the same pixels.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path

import numpy as np

import octet
from benchmarks.harness.home import SHARED
from benchmarks.models.photographs import slim_pixels
from benchmarks.paper.store import Measurement, Run
from service.core.builds.numerics import LITERT_REFERENCE, XNNPACK

PART = "accuracy"
_MODELS = {
    "mobilenet_v2_1.0_224_quant": 224,
    "tf2_mobilenet_v2_1.0_224_ptq": 224,
    "mobilenet_v1_0.25_128_quant": 128,
}


def measure(run: Run) -> Iterator[Measurement]:
    """Measures the models whose files exist; prints the others."""
    for model, size in _MODELS.items():
        expected = SHARED / "expected" / f"{model}.npz"
        if not expected.exists():
            print(f"{model}: left out, {expected} is missing; set OCTET_TEST_DATA", flush=True)
            continue
        with np.load(expected) as recorded:
            photographs = [SHARED / "images" / str(name) for name in recorded["image"]]
            labels = [int(label) for label in recorded["label_index"]]
        for numerics in (LITERT_REFERENCE, XNNPACK):
            path = SHARED / "models" / "tflite" / f"{model}.tflite"
            values = judge(path, size, photographs, labels, numerics)
            print(f"{model}, {numerics}: {values}", flush=True)
            versions = {"octet": version("octet-serve"), "LiteRT": version("ai-edge-litert")}
            yield run.measurement(PART, (model, "LiteRT", numerics), values, versions)


def judge(
    model: Path, size: int, photographs: Sequence[Path], labels: Sequence[int], numerics: str
) -> dict[str, float]:
    """Scores a model in Octet and in LiteRT.

    Args:
        size: the height and width of the model's input.
        labels: the class of each photograph.

    Returns the number of inputs, and shares between 0 and 1: of photographs that each runtime classifies correctly,
    with the 95 % confidence interval of Octet's `top1`, and of photographs with equal results and equal outputs.
    """
    pixels = [slim_pixels(photograph, size)[np.newaxis] for photograph in photographs]
    found = octet.evaluate(model, pixels, labels, against="litert", numerics=numerics)
    top1 = found.metrics["top1"]
    return {
        "inputs": found.inputs,
        "top1": top1.value,
        "low": top1.low,
        "high": top1.high,
        "top5": found.metrics["top5"].value,
        "framework_top1": found.reference_metrics["top1"].value,
        "framework_top5": found.reference_metrics["top5"].value,
        "same_top1": found.metrics["same_top1"].value,
        "equal_outputs": found.metrics["equal_outputs"].value,
    }
