"""Creates the models that are neither given nor exist yet:

    python -m benchmarks.models

Each is created in the environment of the framework that writes it (`python -m benchmarks.setup_peers --making`), with
photographs of the given data for calibration. A model that cannot be created is reported, and left out of the contest.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.harness.home import CHECKOUT, SHARED, Home, default_home
from benchmarks.models.catalog import ROWS, batched, dequantized, symmetric
from benchmarks.models.samples import SAMPLES
from benchmarks.models.tflite_file import with_batch, with_symmetric_weights
from benchmarks.quantization.sources import with_real_weights

_PHOTOGRAPHS = SHARED / "images"


@dataclass(frozen=True)
class Recipe:
    """The recipe of a file: a module that is run in an environment."""

    environment: str
    arguments: list[str]


def main() -> int:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    home, failed = default_home(), 0
    for file in dict.fromkeys(wanted()):
        if home.model(file):
            continue
        print(f"{file} ...", end=" ", flush=True)
        try:
            make(home, file)
        except (OSError, ValueError, subprocess.CalledProcessError) as error:
            failed += 1
            print(error)
        else:
            print("made")
    return 1 if failed else 0


def wanted() -> Iterator[str]:
    """Yields the files in an order in which none depends on a later one."""
    files = [file for row in ROWS for file in row.files.values()]
    for file in files:
        if file.endswith(".u8s8.onnx"):
            yield file.replace(".u8s8.", ".fp32.")
    yield from sorted(files, key=lambda file: file.count("."))


def make(home: Home, file: str) -> None:
    """Writes `file` completely, or not at all.

    Raises:
        OSError: the environment is missing, or a file from which this one is created.
        subprocess.CalledProcessError: it could not be created.
    """
    output = home.models / file
    output.parent.mkdir(parents=True, exist_ok=True)
    unfinished = output.with_name("unfinished." + output.name)
    change = _change(file)
    if change:
        original, changed = change
        unfinished.write_bytes(changed(_found(home, original).read_bytes()))
    else:
        recipe = _recipe(home, file)
        command = [str(home.python(recipe.environment)), "-W", "ignore", "-m", *recipe.arguments]
        command += ["--images", str(_PHOTOGRAPHS), "--output", str(unfinished)]
        subprocess.run(command, cwd=CHECKOUT, check=True, capture_output=True)
    unfinished.replace(output)


def _change(file: str) -> tuple[str, Callable[[bytes], bytes]] | None:
    """Returns the original file and the function that changes it, if `file` is a variant of a TFLite file."""
    for row in ROWS:
        original = row.files.get("tflite")
        if original is None:
            continue
        if file == symmetric(original):
            return original, with_symmetric_weights
        if file == dequantized(original):
            return original, with_real_weights
        if row.batch > 1 and file == original:
            return file.replace(batched(".tflite", row.batch), ".tflite"), partial(with_batch, batch=row.batch)
    return None


def _recipe(home: Home, file: str) -> Recipe:
    network, _, rest = Path(file).name.partition(".")
    if network not in SAMPLES:
        raise FileNotFoundError("not given: it belongs to the shared data, see OCTET_TEST_DATA")
    kind, _, form = rest.partition(".")
    match form, kind:
        case "tflite", _:
            return Recipe("tensorflow", ["benchmarks.models.make_keras", network, kind])
        case "mxnet.zip", _:
            return Recipe("mxnet", ["benchmarks.models.make_mxnet", network, kind])
        case "onnx", "fp32":
            return Recipe("torch", ["benchmarks.models.make_torch", network, "onnx"])
        case "onnx", _:
            original = str(_found(home, file.replace(kind, "fp32")))
            return Recipe("onnxruntime", ["benchmarks.models.make_onnx", network, original])
        case _:
            return Recipe(
                "torch", ["benchmarks.models.make_torch", network, "torchscript" if kind == "fp32" else "int8"]
            )


def _found(home: Home, file: str) -> Path:
    path = home.model(file)
    if path is None:
        raise FileNotFoundError(f"{file}, from which it is created, is missing")
    return path


if __name__ == "__main__":
    sys.exit(main())
