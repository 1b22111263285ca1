"""Figure 6 of Jain et al. 2020 for ARM's targets: memory compared with float32, and whether results equal LiteRT's.

    python -m benchmarks.arm.memory MODEL.tflite…             # prints a table
    python -m benchmarks.arm.memory --write MODEL.tflite…     # and puts it into ARM.md

Weights and activations are counted as in `benchmarks.memory`. The results are those of the real runtime on an emulated
CPU (`qemu-user-static`), compared with LiteRT's with XNNPACK on this machine, for the same random inputs.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.arm.__main__ import CORES
from benchmarks.harness.tables import table, write_section
from benchmarks.memory.__main__ import COLUMNS, compiled, in_float32
from service.core.verification.vectors import sample_inputs
from tests.support import emulated_models, litert


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=Path, nargs="+")
    parser.add_argument("--samples", type=int, default=100)
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    rows = [row for model in arguments.models for row in _rows(model, arguments.samples)]
    text = "Megabytes.\n\n" + table([COLUMNS[0], "target", *COLUMNS[1:], "equal answers"], rows)
    print(text)
    if arguments.write:
        write_section("ARM.md", "memory", text)


def _rows(model: Path, samples: int) -> list[Sequence[str]]:
    float_weights, float_activations = in_float32(model)
    rows: list[Sequence[str]] = []
    for target in CORES:
        with tempfile.TemporaryDirectory(prefix="octet-memory-") as scratch:
            folder = Path(scratch, "artifact")
            config = compiled(model, folder, "--target", target)
            inputs = sample_inputs(config.signature, samples)
            answers = emulated_models.run(target, [folder], config.signature, inputs)
        reference = litert.interpreter(model.read_bytes(), reference=False)
        equal = sum(
            all(
                np.array_equal(ours, theirs) for ours, theirs in zip(answer, litert.run(reference, sample), strict=True)
            )
            for answer, sample in zip(answers, inputs, strict=True)
        )
        weights, activations = config.plan.constant_bytes, config.plan.arena_bytes
        saved = 1 - (weights + activations) / (float_weights + float_activations)
        sizes = (weights, activations, float_weights, float_activations)
        cells = [f"{size / 1e6:.3g}" for size in sizes]
        rows.append([model.stem, target, *cells, f"**{saved:.0%}**", f"{equal} of {samples}"])
    return rows


if __name__ == "__main__":
    main()
