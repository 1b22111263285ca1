"""Imports damaged models and reports the first unexpected result: `python -m tests.support.fuzz STRIDE NAME…`.

It runs as a separate process with limits, because an import may crash or allocate terabytes. It imports every STRIDE-th
mutation of each catalog model, and prints the numbers of refused and imported files as JSON. It fails if an exception
is not an `OctetError`, or if an import takes longer than `_SLOWEST_S`.
"""

from __future__ import annotations

import json
import resource
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import islice
from pathlib import Path

from service.compiler.importers.auto import import_model
from service.core.errors import OctetError
from tests.support import (
    onnx_catalog,
    onnx_catalog_qdq,
    onnx_catalog_real,
    tflite_catalog,
    tflite_recurrent,
    tflite_sparse,
)

MODELS: Mapping[str, Callable[[], bytes]] = {
    **tflite_catalog.MODELS,
    **tflite_recurrent.MODELS,
    **tflite_sparse.MODELS,
    **{
        f"onnx {name}": partial(onnx_catalog.case, name, 1, catalog)
        for catalog in (onnx_catalog.CATALOG, onnx_catalog_qdq.QDQ)
        for name in catalog
    },
    **{
        f"onnx {kind} {name}": partial(onnx_catalog.case, name, 1, catalog)
        for kind, catalog in onnx_catalog_real.CATALOGS.items()
        for name in catalog
    },
}

_ROOT = Path(__file__).parents[2]
_HEADROOM_BYTES = 1 << 30  # Address space in addition to that of the process after it has loaded everything.
_SLOWEST_S = 5.0  # Thousands of times as long as a model of this size takes.
_HOSTILE = (0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x40000000, 0x00010000)


def mutations(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Yields truncations, flipped bits and overwritten words, each with a name that identifies it."""
    for size in range(0, len(data), 64):
        yield f"cut at {size}", data[:size]
    for position in range(len(data)):
        bit = position * 5 % 8  # one bit per byte; all eight bits occur in the file
        yield f"bit {bit} of byte {position}", _replaced(data, position, bytes([data[position] ^ 1 << bit]))
    for position in range(0, len(data) - 3, 4):
        for value in _HOSTILE:
            yield f"{value:#x} at {position}", _replaced(data, position, struct.pack("<I", value))


def fuzz(stride: int, *names: str) -> dict[str, int]:
    """Runs this module in a child process, and returns the numbers of refused and imported files."""
    command = [sys.executable, "-m", "tests.support.fuzz", str(stride), *names]
    result = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr[-2000:]
    counts: dict[str, int] = json.loads(result.stdout)
    return counts


def _replaced(data: bytes, position: int, part: bytes) -> bytes:
    return data[:position] + part + data[position + len(part) :]


def outcome(data: bytes) -> str:
    started = time.process_time()
    try:
        import_model(data)
        result = "imported"
    except OctetError:
        result = "refused"
    assert time.process_time() - started < _SLOWEST_S, "too slow"
    return result


def limit_memory() -> None:
    """Limits the address space of this process to `_HEADROOM_BYTES` more than it uses now."""
    in_use_pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (in_use_pages * resource.getpagesize() + _HEADROOM_BYTES,) * 2)


def main(stride: int, names: list[str]) -> None:
    for name in names:
        import_model(MODELS[name]())  # imports all modules before the limit is set
    limit_memory()
    counts = {"imported": 0, "refused": 0}
    for name in names:
        for what, data in islice(mutations(MODELS[name]()), 0, None, stride):
            try:
                counts[outcome(data)] += 1
            except BaseException:
                print(f"{name}: {what}", file=sys.stderr)
                raise
    print(json.dumps(counts))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
