"""Saves an artifact of this release for the tests of later ones, as tests/fixtures/artifacts/NAME.tar and NAME.npz.

    python -m scripts.keep_artifact NAME      # on a machine that runs x86-64-v3; once per version of the format

The archive has the form that `octet push DIR` sends. The .npz file has inputs, and this release's outputs for them.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from service import runtime
from service.cache import OciLayout
from service.cache.export import export
from service.core.artifacts.artifact import Report, only_artifact
from service.core.target import parse_target

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "tests" / "fixtures" / "artifacts"
TARGET = parse_target("x86-64-v3")
_MODEL = ROOT / "examples" / "digits_int8.tflite"
_SAMPLES = 32


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name")
    name = parser.parse_args().name
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch, "model.octet")
        command = [sys.executable, "-m", "service.cli", "compile", str(_MODEL)]
        subprocess.run([*command, "--target", TARGET.name, "--output", str(folder)], check=True)
        layout = OciLayout.open(folder)
        digest = only_artifact((entry.digest, entry.artifact_type) for entry in layout.index())
        with (FOLDER / f"{name}.tar").open("xb") as archive:
            archive.writelines(export(layout, digest, [Report.VECTORS]).chunks())
        model = runtime.load(folder)
        [spec] = model.signature.inputs
        inputs = np.random.default_rng(1).integers(-128, 128, (_SAMPLES, *spec.shape)).astype(spec.dtype)
        np.savez_compressed(FOLDER / f"{name}.npz", inputs=inputs, outputs=np.stack([model(each) for each in inputs]))


if __name__ == "__main__":
    main()
