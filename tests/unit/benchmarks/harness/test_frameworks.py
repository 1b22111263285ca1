from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness.frameworks import Job


def test_without_a_file_there_are_no_input_arrays() -> None:
    assert Job("octet", "", 1, [0], 1, {}).given() == {}


def test_the_arrays_of_a_file_are_found_by_the_names_of_inputs(tmp_path: Path) -> None:
    ids, mask = np.arange(4), np.ones(4, np.int64)
    saved: dict[str, Any] = {"input0_0": ids, "input0_1": mask, "input1_0": 9 * ids, "output0_0": mask}
    np.savez(tmp_path / "net.onnx.npz", **saved)
    given = Job("octet", "", 1, [0], 1, {}, str(tmp_path / "net.onnx.npz")).given()
    assert {name: list(array) for name, array in given.items()} == {"input0": list(ids), "input1": list(mask)}
