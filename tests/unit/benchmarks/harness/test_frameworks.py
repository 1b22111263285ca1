from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.harness.contestant import ContestantFailed, ContestantProcess
from benchmarks.harness.frameworks import Job
from benchmarks.harness.home import default_home
from benchmarks.harness.machine import cores_for
from tests.support.mxnet_models import answers_of, packed


def test_without_a_file_there_are_no_input_arrays() -> None:
    assert Job("octet", "", 1, [0], 1, {}).given() == {}


def test_the_arrays_of_a_file_are_found_by_the_names_of_inputs(tmp_path: Path) -> None:
    ids, mask = np.arange(4), np.ones(4, np.int64)
    saved: dict[str, Any] = {"input0_0": ids, "input0_1": mask, "input1_0": 9 * ids, "output0_0": mask}
    np.savez(tmp_path / "net.onnx.npz", **saved)
    given = Job("octet", "", 1, [0], 1, {}, str(tmp_path / "net.onnx.npz")).given()
    assert {name: list(array) for name, array in given.items()} == {"input0": list(ids), "input1": list(mask)}


def mxnet_process(model: Path, inputs: np.ndarray, folder: Path) -> ContestantProcess:
    """Starts MXNet on `model`. Skips the test if MXNet's environment is missing."""
    python = default_home().python("mxnet")
    if not python.exists():
        pytest.skip(f"{python} is missing: run python -m benchmarks.setup_peers")
    np.savez(folder / "inputs.npz", input0_0=inputs)
    shape = ",".join(map(str, inputs.shape[1:]))
    options = {"precision": "int8", "shape": shape}
    job = Job("mx_net", str(model), 1, cores_for(1), len(inputs), options, str(folder / "inputs.npz"))
    return ContestantProcess(python, job, folder / "log")


def test_mxnet_computes_the_recorded_outputs(tmp_path: Path) -> None:
    inputs, expected = answers_of("sg_residual")
    (tmp_path / "model.zip").write_bytes(packed("sg_residual"))
    with mxnet_process(tmp_path / "model.zip", inputs[0], tmp_path) as process:
        (output,) = process.outputs()
        assert process.info["version"] == "1.9.1"
        assert process.turn(0.05, 60).median_ms > 0
    np.testing.assert_array_equal(output, expected[0])


def test_mxnet_reports_a_file_that_is_not_an_archive(tmp_path: Path) -> None:
    (tmp_path / "model.zip").write_bytes(b"not an archive")
    with pytest.raises(ContestantFailed, match="BadZipFile"):
        mxnet_process(tmp_path / "model.zip", np.zeros((1, 3, 8, 8), np.float32), tmp_path)
