"""The small inputs that failed in the review of version 0.1. Each is computed correctly, or refused with a correct
message.

They are in `../shared/cases`, with the expected results in each folder's `case.md`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from service.compiler.importers.mxnet.package import pack_files
from service.compiler.references import REFERENCES
from service.core.builds.numerics import FBGEMM, LITERT_REFERENCE, MXNET_ONEDNN, ONNXRUNTIME, PT2E, XNNPACK
from service.core.builds.options import with_shapes
from service.core.models.arrays import Array
from tests.fuzz.graphs.formats import Runtime
from tests.fuzz.graphs.judge import Answers, Judge, Verdict
from tests.support import shared_data

pytestmark = pytest.mark.slow

CASES = shared_data.ROOT.parent / "cases"
FORMATS = {".tflite": "tflite", ".onnx": "onnx", ".pt": "torchscript", ".pt2": "pt2", ".json": "mxnet"}
MODES = {"tflite": LITERT_REFERENCE, "onnx": ONNXRUNTIME, "torchscript": FBGEMM, "pt2": PT2E, "mxnet": MXNET_ONEDNN}
FILES = sorted(path for path in CASES.rglob("*") if path.suffix in FORMATS)


@pytest.fixture(scope="module")
def judges() -> Iterator[dict[str, Judge]]:
    made = {numerics: Judge(numerics) for numerics in (*MODES.values(), XNNPACK)}
    yield made
    for judge in made.values():
        judge.close()


def test_there_are_cases() -> None:
    shared_data.require_shared_data()
    assert len(FILES) > 100


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(CASES)))
def test_it_is_right_or_refused(judges: dict[str, Judge], path: Path) -> None:
    name, file_format = str(path.relative_to(CASES)), FORMATS[path.suffix]
    numerics = XNNPACK if "xnn-" in name else MODES[file_format]
    verdict = _verdict(judges[numerics], path, file_format, numerics)
    assert verdict.outcome in ("equal", "refused"), verdict


def _verdict(judge: Judge, path: Path, file_format: str, numerics: str) -> Verdict:
    if file_format in ("tflite", "onnx"):
        data = path.read_bytes()
        try:
            reference: Answers = Runtime(file_format, data, numerics)
        except Exception:
            return judge.of_file(data, _no_answers)
        return judge.of_file(data, reference)
    samples, reference = _saved(path.parent)
    if not samples:
        pytest.importorskip("torch")
        reference = REFERENCES[file_format].open(str(path), REFERENCES[file_format].sessions[numerics][0])
    if file_format == "mxnet":
        return judge.of_file(pack_files(path), reference, samples, with_shapes({"data": samples[0][0].shape}))
    return judge.of_file(path.read_bytes(), reference, samples)


def _no_answers(inputs: Sequence[Array]) -> list[Array]:
    raise AssertionError("a file that its runtime does not load was built")


def _saved(folder: Path) -> tuple[list[list[Array]], Answers]:
    """Returns the inputs and outputs that were saved by MXNet (`x` and `y`, for all samples) or PyTorch (`x0_1` is
    input 1 of sample 0).
    """
    arrays = {name: array for path in folder.glob("*.npz") for name, array in np.load(path).items()}
    if "x" in arrays:
        samples, outputs = ([[each] for each in arrays[name]] for name in "xy")
    else:
        samples, outputs = (_by_sample(arrays, letter) for letter in "xy")
    following = iter(outputs)
    return samples, lambda inputs: next(following)


def _by_sample(arrays: dict[str, Array], letter: str) -> list[list[Array]]:
    numbers = [tuple(map(int, name[1:].split("_"))) for name in arrays if name.startswith(letter)]
    count = 1 + max((sample for sample, _ in numbers), default=-1)
    return [
        [arrays[f"{letter}{sample}_{each}"] for at, each in sorted(numbers) if at == sample] for sample in range(count)
    ]
