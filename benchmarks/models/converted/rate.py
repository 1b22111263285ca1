"""Compares the oracle with LiteRT on converted files, in both numerics modes."""

from __future__ import annotations

import multiprocessing
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import numpy as np
from ai_edge_litert.interpreter import Interpreter, OpResolverType

from service.compiler.importers.tflite import import_model
from service.compiler.qnn import oracle
from service.compiler.qnn.numerics import get_mode
from service.core.builds.numerics import LITERT_REFERENCE, XNNPACK
from service.core.errors import OctetError
from service.core.models.arrays import Array

_CLOSE = 4e-6  # relative to the largest value: float32 sums that are added in another order
_REFUSED = "LiteRT does not run it"


def rate_all(files: Sequence[Path]) -> None:
    """Prints every file whose results are not alike, and then the rate of each mode."""
    counts: dict[str, Counter[str]] = {LITERT_REFERENCE: Counter(), XNNPACK: Counter()}
    for file, mode, verdict in _verdicts(files, list(counts)):
        counts[mode][verdict.split(":")[0]] += 1
        if verdict not in ("equal", "close", _REFUSED):
            print(f"{file.name}, {mode}: {verdict}", flush=True)
    for mode, count in counts.items():
        run = sum(count.values()) - count[_REFUSED]
        print(f"{mode}: {count['equal']} equal and {count['close']} close of {run} files that LiteRT runs")


def _verdicts(files: Sequence[Path], modes: Sequence[str]) -> Iterator[tuple[Path, str, str]]:
    """Yields every file, mode and verdict, from another process, because LiteRT ends its process for some files."""
    remaining = [(file, mode) for file in files for mode in modes]
    while remaining:
        with ProcessPoolExecutor(max_workers=1, mp_context=multiprocessing.get_context("spawn")) as child:
            try:
                while remaining:
                    file, mode = remaining[0]
                    verdict = child.submit(_verdict, file, mode).result()
                    remaining.pop(0)
                    yield file, mode, verdict
            except BrokenProcessPool:
                remaining.pop(0)
                yield file, mode, _REFUSED


def _verdict(file: Path, mode: str) -> str:
    data = file.read_bytes()
    try:
        inputs, expected = _run(data, is_reference=mode == LITERT_REFERENCE)
    except (RuntimeError, ValueError):
        return _REFUSED
    try:
        actual = oracle.run(import_model(data).module, get_mode(mode), inputs)
    except OctetError as error:
        return f"refused: {error.message}"
    worst = "equal"
    for ours, theirs in zip(actual, expected, strict=True):
        if np.array_equal(ours, theirs, equal_nan=theirs.dtype.kind == "f"):
            continue
        distance = float(np.abs(ours.astype(np.float64) - theirs.astype(np.float64)).max())
        if theirs.dtype.kind != "f" or distance > _CLOSE * float(np.abs(theirs).max()):
            return f"different: by up to {distance:.3g}"
        worst = "close"
    return worst


def _run(data: bytes, *, is_reference: bool) -> tuple[list[Array], list[Array]]:
    """Returns random inputs and LiteRT's outputs."""
    kind = OpResolverType.BUILTIN_REF if is_reference else OpResolverType.AUTO
    loaded = Interpreter(model_content=data, experimental_op_resolver_type=kind, num_threads=1)
    loaded.allocate_tensors()
    rng, inputs = np.random.default_rng(0), []
    for detail in loaded.get_input_details():
        dtype = np.dtype(detail["dtype"])
        limits = (-1, 1) if dtype.kind == "f" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
        value = rng.normal(size=detail["shape"]) if dtype.kind == "f" else rng.integers(*limits, detail["shape"])
        inputs.append(value.astype(dtype))
        loaded.set_tensor(detail["index"], inputs[-1])
    loaded.invoke()
    return inputs, [loaded.get_tensor(detail["index"]) for detail in loaded.get_output_details()]
