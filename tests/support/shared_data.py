"""Other people's models and photographs, which the project uses in tests but does not contain."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(os.environ.get("OCTET_TEST_DATA") or Path(__file__).parents[3] / "shared" / "data")
TFLITE_MODELS = sorted((ROOT / "models" / "tflite").glob("*.tflite"))


def require_shared_data() -> Path:
    """The folder of `OCTET_TEST_DATA`, or `shared/data` beside the checkout; skips the test if it does not exist."""
    if not ROOT.is_dir():
        pytest.skip(f"no test data in {ROOT}; set OCTET_TEST_DATA to run this test")
    return ROOT
