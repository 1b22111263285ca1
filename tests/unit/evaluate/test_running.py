"""Files that a child wrote are used only if they are regular and have the size that the signature determines."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from service.core.builds.numerics import LITERT_REFERENCE, PT2E
from service.core.errors import BuildFailed, InvalidInput, Unsupported
from service.core.models.signature import ModelSignature, TensorSpec
from service.core.settings import Settings
from service.evaluate.running import map_outputs, reference_of
from tests.support.compiled import EXAMPLES

SIGNATURE = ModelSignature((TensorSpec("x", "UINT8", (1, 4)),), (TensorSpec("y", "INT16", (1, 3)),))
MODEL = EXAMPLES / "digits_int8.tflite"


def test_outputs_are_mapped(tmp_path: Path) -> None:
    values = np.arange(6, dtype=np.int16).reshape(2, 1, 3)
    (tmp_path / "outputs-0.bin").write_bytes(values.tobytes())
    outputs = map_outputs(tmp_path, SIGNATURE, 2)
    assert len(outputs) == 2
    np.testing.assert_array_equal(outputs.of_input(1)[0], values[1])


def test_a_file_of_another_size_is_refused(tmp_path: Path) -> None:
    (tmp_path / "outputs-0.bin").write_bytes(bytes(11))
    with pytest.raises(BuildFailed, match="did not write 12 bytes of output 'y'"):
        map_outputs(tmp_path, SIGNATURE, 2)


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(bytes(12))
    (tmp_path / "outputs-0.bin").symlink_to(tmp_path / "secret")
    with pytest.raises(BuildFailed, match=r"did not write outputs-0\.bin"):
        map_outputs(tmp_path, SIGNATURE, 2)


def test_a_runtime_that_does_not_run_the_format() -> None:
    with pytest.raises(Unsupported, match="PyTorch does not run tflite files") as caught:
        reference_of(MODEL, LITERT_REFERENCE, "torch", Settings())
    assert caught.value.hint == "use --against litert"


def test_a_mode_that_the_runtime_does_not_define() -> None:
    with pytest.raises(Unsupported, match=f"LiteRT does not define the numerics mode {PT2E}"):
        reference_of(MODEL, PT2E, "litert", Settings())


def test_a_runtime_that_does_not_exist() -> None:
    with pytest.raises(InvalidInput, match="'tensorrt' is not a reference runtime"):
        reference_of(MODEL, LITERT_REFERENCE, "tensorrt", Settings())
