from pathlib import Path

import numpy as np

from benchmarks.harness.predictions import largest_difference, random_inputs

EXAMPLES = Path(__file__).parents[4] / "examples"


def test_inputs_are_the_same_every_time_and_use_the_whole_range() -> None:
    (first,), (second,) = (random_inputs(EXAMPLES / "digits_int8.tflite") for _ in range(2))
    assert first.tobytes() == second.tobytes()
    assert (first.dtype.name, first.min(), first.max()) == ("int8", -128, 127)


def test_the_largest_difference_does_not_overflow() -> None:
    assert largest_difference([np.array([-128, 1], np.int8)], [np.array([127, 2], np.int8)]) == 255
