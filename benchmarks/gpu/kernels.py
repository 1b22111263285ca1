"""Replays the launches of the kernels' tests on a GPU: `python -m benchmarks.gpu.kernels FOLDER [NUMBER…]`.

FOLDER is the folder that `launches` wrote, and each NUMBER identifies a launch in it. Makes the launches in the given
order. Prints a line of JSON before each launch, so that the launch at which this process ends is known, and another
line after the launch's output was compared, byte for byte.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from service.cache import OciLayout
from service.core.digest import parse_digest
from service.core.errors import OctetError
from service.core.models.arrays import Array
from service.core.models.signature import TensorSpec
from service.runtime.loading import load

LAUNCHES_FILE, OPERANDS = "launches.json", "operands"


def main() -> None:
    folder, numbers = Path(sys.argv[1]), map(int, sys.argv[2:])
    layout = OciLayout.open(folder)
    launches = json.loads((folder / LAUNCHES_FILE).read_text())
    for number in numbers:
        _tell(begun=number)
        try:
            difference = _compared(layout, folder / OPERANDS, launches[number])
        except OctetError as error:
            _tell(number=number, said=f"{type(error).__name__}: {error}")
            sys.exit(1)  # the GPU may be lost to this process
        _tell(number=number, said=difference)


def _compared(layout: OciLayout, operands: Path, launch: dict[str, Any]) -> str:
    """Returns "" if the GPU gives the emulation's bytes; otherwise a description of the difference."""
    model = load(layout, parse_digest(launch["artifact"]))
    inputs = zip(model.signature.inputs, launch["inputs"], strict=True)
    outputs = model.run([_filled(spec, (operands / name).read_bytes()) for spec, name in inputs])
    for index, (output, name) in enumerate(zip(outputs, launch["outputs"], strict=True)):
        expected = (operands / name).read_bytes()
        different = np.flatnonzero(output != np.frombuffer(expected.ljust(output.nbytes, b"\0"), np.uint8))
        if different.size:
            return f"output {index} differs in {different.size} bytes, the first at {different[0]} of {len(expected)}"
    return ""


def _filled(spec: TensorSpec, values: bytes) -> Array:
    """Returns the values, padded with zeros."""
    filled = np.zeros(spec.shape, np.uint8)
    filled[: len(values)] = np.frombuffer(values, np.uint8)
    return filled


def _tell(**found: object) -> None:
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
