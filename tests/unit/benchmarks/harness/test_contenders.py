import json
import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from benchmarks.harness.contenders import LiteRT, Running, random_inputs
from benchmarks.harness.turns import cores_for

EXAMPLES = Path(__file__).parents[4] / "examples"


def test_a_contender_computes_in_its_own_process() -> None:
    expected = json.loads((EXAMPLES / "expected.json").read_text())["digits_uint8.tflite"]["reference"][7]
    pixels = np.asarray(Image.open(EXAMPLES / "digits" / "7.png")).reshape(1, 16, 16, 1)
    model = LiteRT(EXAMPLES / "digits_uint8.tflite", reference=True)
    with Running(model, [pixels], cores_for(1)) as running:
        assert [output.tolist() for output in running.outputs] == [[expected]]
        assert running.pids != [os.getpid()]
        assert len(running.durations_s(0)) == 5


def test_a_contender_that_cannot_be_loaded_says_why(tmp_path: Path) -> None:
    broken = tmp_path / "broken.tflite"
    broken.write_bytes(b"no model")
    with pytest.raises(RuntimeError, match="not a valid Flatbuffer"):
        Running(LiteRT(broken), [], cores_for(1))


def test_inputs_are_the_same_every_time_and_use_the_whole_range() -> None:
    (first,), (second,) = (random_inputs(EXAMPLES / "digits_int8.tflite") for _ in range(2))
    assert first.tobytes() == second.tobytes()
    assert (first.dtype.name, first.min(), first.max()) == ("int8", -128, 127)
