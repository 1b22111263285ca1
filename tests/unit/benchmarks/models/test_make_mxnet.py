import subprocess
from pathlib import Path

import pytest

from benchmarks.harness.home import CHECKOUT, default_home
from benchmarks.models.catalog import ROWS

NETWORKS = [row.name for row in ROWS if "mxnet" in row.files]
_PROGRAM = """
import sys
from mxnet.gluon.model_zoo import vision
for name in sys.argv[1:]:
    vision.get_model(name)
"""


def test_mxnets_model_zoo_has_the_networks_of_the_catalog() -> None:
    assert len(NETWORKS) >= 3
    run_in_mxnets_environment("-c", _PROGRAM, *NETWORKS)


@pytest.mark.parametrize("network", NETWORKS)
def test_the_command_accepts_the_networks_of_the_catalog(network: str, tmp_path: Path) -> None:
    """A folder without photographs ends the command after it has parsed its arguments."""
    arguments = (network, "int8", "--images", str(tmp_path), "--output", str(tmp_path / "model.zip"))
    done = run_in_mxnets_environment("-m", "benchmarks.models.make_mxnet", *arguments, check=False)
    assert f"{tmp_path} has 0 photographs (*.JPEG), but 24 are needed" in done.stderr
    assert not (tmp_path / "model.zip").exists()


def run_in_mxnets_environment(*arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Skips the test if MXNet's environment is missing."""
    python = default_home().python("mxnet")
    if not python.exists():
        pytest.skip(f"{python} is missing: run python -m benchmarks.setup_peers")
    return subprocess.run([python, *arguments], cwd=CHECKOUT, capture_output=True, text=True, check=check)
