"""Models and photographs of third parties. Tests use them, but the repository does not contain them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(os.environ.get("OCTET_TEST_DATA") or Path(__file__).parents[3] / "shared" / "data")
TFLITE_MODELS = sorted((ROOT / "models" / "tflite").glob("*.tflite"))


def require_shared_data() -> Path:
    """Returns the folder in `OCTET_TEST_DATA`, or `shared/data` next to the checkout. If it does not exist, skips the
    test.
    """
    if not ROOT.is_dir():
        pytest.skip(f"no test data in {ROOT}; set OCTET_TEST_DATA to run this test")
    return ROOT
