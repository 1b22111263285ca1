"""The hot loops of a compiled model's kernels."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from benchmarks.arm.assembly import Loop, loops
from service.cache import OciLayout
from service.core.artifacts.artifact import Report, only_artifact
from service.runtime.stored import StoredArtifact
from service.runtime.trust import ANYBODY

_BODY = "_compute_"  # LLVM names the function with a kernel's loops after the kernel, followed by this text


@dataclass(frozen=True)
class Hot:
    """The loop in which a kernel multiplies.

    Attributes:
        macs: multiply-accumulates of all layers that the kernel computes.
    """

    family: str
    macs: int
    loop: Loop


def hot_loops(folder: Path) -> list[Hot]:
    """Returns, for each kernel of the only artifact in a folder, the innermost loop with the most products."""
    layout = OciLayout(folder)
    digest = only_artifact((entry.digest, entry.artifact_type) for entry in layout.index())
    found: dict[str, list[Loop]] = defaultdict(list)
    for loop in loops(StoredArtifact.read(layout, digest, ANYBODY).library):
        found[loop.function.removesuffix(_BODY)].append(loop)
    coverage = layout.attached(digest, Report.COVERAGE)
    assert coverage is not None
    families: dict[str, str] = {}
    macs: dict[str, int] = defaultdict(int)
    for layer in json.loads(coverage)["kernels"]["layers"]:
        families[layer["symbol"]] = layer["kernel"]
        macs[layer["symbol"]] += layer["macs"]
    return [
        Hot(families[symbol], macs[symbol], max(own, key=lambda loop: loop.macs))
        for symbol, own in found.items()
        if macs.get(symbol)
    ]
