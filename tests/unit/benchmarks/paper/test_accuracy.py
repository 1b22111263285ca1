import numpy as np
import pytest

from benchmarks.paper.accuracy import judge
from service.core.builds.numerics import XNNPACK
from tests.support.shared_data import require_shared_data

_MODEL, _COUNT = "mobilenet_v1_0.25_128_quant", 8


@pytest.mark.slow
def test_octet_has_the_accuracy_and_the_outputs_of_litert() -> None:
    """The expected accuracy is that of LiteRT's recorded outputs."""
    root = require_shared_data()
    with np.load(root / "expected" / f"{_MODEL}.npz") as recorded:
        scores, labels = recorded["out_xnnpack"][:_COUNT], recorded["label_index"][:_COUNT]
        photographs = [root / "images" / str(name) for name in recorded["image"][:_COUNT]]
    path = root / "models" / "tflite" / f"{_MODEL}.tflite"
    values = judge(path, 128, photographs, [int(label) for label in labels], XNNPACK)
    right = float((scores.argmax(1) == labels).mean())
    assert (values["top1"], values["framework_top1"]) == (right, right)
    assert (values["inputs"], values["same_top1"], values["equal_outputs"]) == (_COUNT, 1, 1)
    assert values["low"] <= right <= values["high"]
