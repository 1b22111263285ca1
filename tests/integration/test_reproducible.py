"""A rebuild on another machine gives the same digest. Here, the other machine is simulated by other folders, another
environment and another host name. Another way to build gives the same digest, too.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from service.core.system.cores import usable_cores
from tests.support.compiled import EXAMPLES
from tests.support.serving import RUNS_HERE, serving
from tests.support.signing import needs_signatures, write_pair
from tests.support.waiting import WORK_TIMEOUT_S

MODEL = EXAMPLES / "digits_int8.tflite"
PROGRAM = Path(sys.executable).parent / "octet"


@pytest.mark.slow
@pytest.mark.parametrize("target", ["x86-64-v3", "aarch64+dotprod"])
def test_the_digest_depends_only_on_the_inputs(tmp_path: Path, target: str) -> None:
    here = build(tmp_path / "here", "model.tflite", target, {"LANG": "C", "TZ": "UTC", "PYTHONHASHSEED": "1"})
    elsewhere = build(
        tmp_path / "a" / "much" / "longer" / "path" / "elsewhere",
        "another-name.tflite",
        target,
        {"LANG": "C.UTF-8", "TZ": "Asia/Tokyo", "PYTHONHASHSEED": "2", "USER": "somebody", "OCTET_BUILD_CORES": "1"},
        [*_other_host(), "taskset", "-c", str(min(min(core) for core in usable_cores()))],
    )
    assert here == elsewhere


@pytest.mark.slow
@needs_signatures
def test_a_server_builds_the_same_artifact_as_the_command(tmp_path: Path) -> None:
    """The digest is the same even if the server signs the artifact, because a signature is attached to an artifact and
    is not part of it."""
    (tmp_path / "server").mkdir()
    key, _ = write_pair(tmp_path)
    with serving(tmp_path / "server", signing_key=key) as served:
        built = served.ended(served.push(MODEL.name, target=RUNS_HERE)["id"])
        assert served.stop() == 0
    assert built["state"] == "succeeded", built
    assert built["artifact"] == build(tmp_path / "here", "model.tflite", RUNS_HERE, {})


def build(folder: Path, name: str, target: str, environment: dict[str, str], prefix: Sequence[str] = ()) -> str:
    """Builds in `folder` with an empty home, temporary folder and caches, and returns the digest."""
    for each in ("home", "tmp", "data"):
        (folder / each).mkdir(parents=True)
    shutil.copy(MODEL, folder / name)
    own = {"HOME": "home", "TMPDIR": "tmp", "OCTET_DATA_DIR": "data", "XDG_CACHE_HOME": "home/cache"}
    positions = {variable: str(folder / position) for variable, position in own.items()}
    command = [*prefix, str(PROGRAM), "compile", name, "--output", "out", "--target", target, "--json"]
    made = subprocess.run(
        command,
        cwd=folder,
        env={"PATH": os.environ["PATH"], "OCTET_ALLOW_UNSANDBOXED": "1", **positions, **environment},
        capture_output=True,
        text=True,
        timeout=WORK_TIMEOUT_S,
        check=False,
    )
    assert made.returncode == 0, made.stderr + made.stdout
    digest: str = json.loads(made.stdout)["artifact"]
    return digest


def _other_host() -> list[str]:
    """Returns a command prefix that gives the process another host name, if the kernel allows that."""
    if os.getuid() == 0 and shutil.which("unshare"):
        return ["unshare", "--uts", "sh", "-c", 'hostname elsewhere && exec "$@"', "sh"]
    return []
