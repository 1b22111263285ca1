import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from benchmarks.harness.artifacts import compile_model
from benchmarks.harness.contestant import ContestantFailed, ContestantProcess
from benchmarks.harness.frameworks import Job
from benchmarks.harness.machine import cores_for
from service.runtime import load
from tests.support.child_process import is_running
from tests.support.waiting import WORK_TIMEOUT_S, eventually

MODEL = Path(__file__).parents[4] / "examples" / "digits_int8.tflite"


def job(path: Path = MODEL, framework: str = "litert") -> Job:
    return Job(framework, str(path), 1, cores_for(1), 1, {})


def start(log: Path, job: Job, python: Path = Path(sys.executable)) -> ContestantProcess:
    return ContestantProcess(python, job, log, WORK_TIMEOUT_S)


def state(pid: int) -> str:
    """Returns the state of a process: `T` if it is stopped."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_a_contestant_is_timed_in_its_own_process_and_stopped_between_turns(tmp_path: Path) -> None:
    with start(tmp_path / "log", job()) as process:
        assert process.info["output_shapes"] == [[1, 10]]
        turn = process.turn(0.05, WORK_TIMEOUT_S)
        assert turn.calls >= 3
        assert 0 < turn.min_ms <= turn.median_ms <= turn.p90_ms
        eventually(lambda: state(process.pid) == "T")


@pytest.mark.slow
def test_a_contestant_returns_its_durations_and_outputs(tmp_path: Path) -> None:
    image, folder = tmp_path / "image.npy", MODEL.parent
    np.save(image, np.asarray(Image.open(folder / "digits" / "7.png")).reshape(1, 16, 16, 1))
    compile_model(folder / "digits_uint8.tflite", tmp_path / "artifact", "--numerics", "litert-reference")
    expected = json.loads((folder / "expected.json").read_text())["digits_uint8.tflite"]["reference"][7]
    (name,) = [spec.name for spec in load(tmp_path / "artifact").signature.inputs]
    octet = Job("octet", str(tmp_path / "artifact"), 1, cores_for(1), 1, {"input": name}, str(image))
    with start(tmp_path / "log", octet) as process:
        assert [output.tolist() for output in process.outputs()] == [[expected]]
        assert len(process.durations_s(0)) == 5


def test_a_model_that_cannot_be_loaded_is_the_contestants_failure(tmp_path: Path) -> None:
    broken = tmp_path / "broken.tflite"
    broken.write_bytes(b"no model")
    with pytest.raises(ContestantFailed, match="not a valid Flatbuffer"):
        start(tmp_path / "log", job(broken))


def test_a_missing_environment_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ContestantFailed, match=r"run: python -m benchmarks\.setup_peers"):
        start(tmp_path / "log", job(), tmp_path / "venvs" / "onnxruntime" / "bin" / "python")


def test_a_contestant_that_does_not_respond_fails(tmp_path: Path) -> None:
    with pytest.raises(ContestantFailed, match="no answer within 0 s"):
        ContestantProcess(Path(sys.executable), job(), tmp_path / "log", 0.0)


def test_a_killed_contest_leaves_no_processes(tmp_path: Path) -> None:
    code = f"""
import os, signal
from pathlib import Path
from benchmarks.harness.contestant import ContestantProcess
from tests.unit.benchmarks.harness.test_contestant import job, start
print(start(Path({str(tmp_path / "log")!r}), job()).pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=Path(__file__).parents[4], capture_output=True, text=True, check=False
    )
    eventually(lambda: not is_running(int(done.stdout)))
