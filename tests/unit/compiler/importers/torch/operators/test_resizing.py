"""`aten::upsample_nearest2d` of exported programs selects the same elements as PyTorch, for real and for stored
values.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from service.compiler.importers.torch import import_torchscript
from service.compiler.importers.torch.exported import import_exported
from service.compiler.qnn import oracle
from service.compiler.qnn.numerics import get_mode
from service.core.builds.numerics import FBGEMM, PT2E
from service.core.errors import MalformedModel, OctetError, Unsupported
from service.core.models.arrays import Array
from service.quantize.export.model import as_onnx
from service.quantize.file.document import Document
from tests.support.exported import dequantize, document, node, program, quantize, tensor
from tests.support.torchscript import FOLDER, quantized

DEFAULT, VEC = (f"torch.ops.aten.upsample_nearest2d.{overload}" for overload in ("default", "vec"))
NONE: dict[str, Any] = {"as_none": True}
DOUBLE = [NONE, {"as_floats": [2.0, 2.0]}]
IMAGE = np.random.default_rng(0).normal(0, 1, (1, 2, 4, 4)).astype(np.float32)


def sized(*sizes: int) -> dict[str, Any]:
    return {"as_ints": list(sizes)}


def made(nodes: list[dict[str, Any]], x: Array) -> tuple[str, Array]:
    """Returns the text of the imported module, and its result for `x`."""
    module = import_exported(program(document(nodes, shape=x.shape))).module
    return str(module), oracle.run_all(module, get_mode(PT2E), [[x]])[0][0]


def refused(*arguments: dict[str, Any], overload: str = VEC, shape: tuple[int, ...] = (1, 2, 4, 4)) -> OctetError:
    with pytest.raises((MalformedModel, Unsupported)) as caught:
        import_exported(program(document([node(overload, "y", tensor("x"), *arguments)], shape=shape)))
    assert str(caught.value.op).startswith("aten::upsample_nearest2d")
    return caught.value


def test_the_rows_equal_those_of_pytorch() -> None:
    """PyTorch's two kernels select the same rows here (`scripts/pt2_fixtures.py`)."""
    with np.load(FOLDER / "nearest.npz") as arrays:
        cases = list(zip(arrays["before"].tolist(), arrays["after"].tolist(), arrays["factor"].tolist(), strict=True))
        expected = np.split(arrays["places"], np.cumsum(np.repeat(arrays["after"], 2))[:-1])
    for index, (before, after, factor) in enumerate(cases):
        rows = np.arange(before, dtype=np.float32).reshape(1, 1, before, 1)
        scales = [] if np.isnan(factor) else [{"as_float": factor}, {"as_float": 1.0}]
        _, found = made([node(DEFAULT, "y", tensor("x"), sized(after, 1), *scales)], rows)
        for theirs in expected[2 * index : 2 * index + 2]:
            np.testing.assert_array_equal(found[0, 0, :, 0], theirs)


@pytest.mark.parametrize("arguments", [DOUBLE, [sized(8, 8), NONE]])
def test_stored_elements_stay_stored(arguments: list[dict[str, Any]]) -> None:
    """The layers before and after the operator stay in integers."""
    resized = node(VEC, "u", tensor("r"), *arguments)
    ends = [quantize("x", "q"), dequantize("q", "r")]
    text, found = made([*ends, resized, quantize("u", "s"), dequantize("s", "y")], IMAGE)
    _, plain = made([ends[0], dequantize("q", "y")], IMAGE)
    np.testing.assert_array_equal(found, plain.repeat(2, axis=2).repeat(2, axis=3))
    assert text.count("qnn.dequantize") == 1
    assert text.index("take_pixels") < text.index("qnn.dequantize")


@pytest.mark.parametrize("call", ["q, [24, 18], 2., 1.5", "q, None, [2., 1.5]"])
def test_a_quantized_tensor_of_a_script(call: str) -> None:
    shape = (2, 3, 12, 12)
    x = np.random.default_rng(0).normal(0, 1, shape).astype(np.float32)
    results = []
    for lines in (["y = torch.relu(q)"], [f"y = torch.upsample_nearest2d({call})", "y = torch.relu(y)"]):
        module = import_torchscript(quantized(*lines), shapes={"": shape}).module
        results.append(oracle.run_all(module, get_mode(FBGEMM), [[x]])[0][0])
    columns = [index * 2 // 3 for index in range(18)]
    np.testing.assert_array_equal(results[1], results[0].repeat(2, axis=2)[..., columns])


def test_the_operator_becomes_one_onnx_operator() -> None:
    """When a float program is quantized, it is converted to ONNX in this form."""
    data = program(document([node(VEC, "y", tensor("x"), *DOUBLE)]))
    assert [each.op_type for each in Document(as_onnx(data, {})).nodes] == ["Resize"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([sized(8)], "computes images of"),
        ([sized(0, 8)], "computes images of"),
        ([sized(1 << 40, 8)], "has an argument that is not an integer"),
        ([sized(1 << 30, 8)], "computes images of"),
        ([NONE, {"as_floats": [2.0]}], "1 factors, but needs two"),
        ([NONE, {"as_floats": [2.0, -2.0]}], "has the factors"),
        ([NONE, {"as_floats": [2.0, 1e300]}], "has the factors"),
        ([NONE, {"as_floats": [0.1, 2.0]}], "computes images of"),
        ([NONE, NONE], "has neither a size nor factors"),
    ],
)
def test_arguments_that_give_no_valid_image_are_refused(arguments: list[dict[str, Any]], message: str) -> None:
    assert message in refused(*arguments).message


def test_images_must_have_four_dimensions() -> None:
    assert "not [N, C, H, W]" in refused(*DOUBLE, shape=(1, 4, 4)).message


def test_a_factor_for_which_kernels_differ_is_refused() -> None:
    """PyTorch's kernel for quantized tensors selects other rows here than its kernel for real tensors."""
    error = refused(sized(22, 4), {"as_float": 2.0163810268203166}, NONE, overload=DEFAULT, shape=(1, 1, 11, 4))
    assert "kernels differ" in error.message
