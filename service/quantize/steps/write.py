"""Writes the quantized file and the report."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from service.compiler.importers.onnx.file.package import size_bytes
from service.core.builds.quantization import QuantizationOptions
from service.quantize.messages import QUANTIZED_FILE, REPORT_FILE
from service.quantize.steps.check import Measured
from service.quantize.steps.options import Options
from service.quantize.steps.rewrite import Quantized


def write(source: bytes, model: bytes, quantized: bytes, document: Mapping[str, Any]) -> None:
    """Writes the quantized file and the report to the working directory.

    Args:
        source: the file that the user passed.
        model: the float model as ONNX. The report compares its size with that of `quantized`, because the source's own
            format, or an archive, would store the same weights differently.
    """
    Path(QUANTIZED_FILE).write_bytes(quantized)
    sizes = {"source": len(source), "float": size_bytes(model), "quantized": len(quantized)}
    Path(REPORT_FILE).write_text(json.dumps({"bytes": sizes, **document}, allow_nan=False))


def describe(
    requested: QuantizationOptions, options: Options, quantized: Quantized, measured: Measured
) -> dict[str, Any]:
    """Returns the report's fields about layers and about the loss of accuracy."""
    return {
        "method": requested.method,
        "activations": requested.activations,
        "kept": list(options.kept),
        "wide": list(options.wide),
        "bfloat16": list(options.bfloat16),
        **({"live": [asdict(each) for each in requested.live]} if requested.live else {}),
        "quantized": len(quantized.plan.layers),
        "float": [{"op_type": kind, "reason": why, "operators": number} for kind, why, number in quantized.real],
        **measured.to_json(),
    }
