"""The unmodified `kserve` SDK works over HTTP and gRPC. It runs in its own environment, because it needs other package
versions.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

from tests.support.data_plane import DataPlane, sample_tables, serving
from tests.support.waiting import WORK_TIMEOUT_S

PYTHON = Path(os.environ.get("OCTET_KSERVE", Path.home() / ".cache" / "octet-kserve" / "venv")) / "bin" / "python"
SESSION = Path(__file__).parent.parent / "support" / "kserve_session.py"
COLUMNS = (np.arange(64, dtype=np.int32) * 4 % 256).reshape(8, 8).sum(axis=0).tolist()


@pytest.mark.slow  # the SDK takes ten seconds to import
@pytest.mark.skipif(not PYTHON.exists(), reason=f"NOT TESTED, since there is no kserve at {PYTHON}: pip install kserve")
def test_the_sdk_gets_the_status_and_correct_outputs() -> None:
    plane = DataPlane(sample_tables())
    with serving(plane) as address:
        done = subprocess.run(
            [str(PYTHON), str(SESSION), f"http://{address}", plane.grpc],
            capture_output=True,
            text=True,
            timeout=WORK_TIMEOUT_S,
            env={"PATH": os.environ["PATH"]},
            check=False,
        )
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout.splitlines()[-1])
    for protocol in ("rest", "grpc"):
        assert results[protocol] == {
            "live": True,
            "ready": True,
            "model_ready": True,
            "unbuilt_ready": False,
            "infer, binary False": [COLUMNS],
            "infer, binary True": [COLUMNS],
        }, protocol
