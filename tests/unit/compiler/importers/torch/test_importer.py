"""TorchScript is evaluated from the inputs to the outputs. The error for operators that cannot be compiled names
them.
"""

from __future__ import annotations

import numpy as np
import pytest

from service.compiler.importers.facts import facts_of
from service.compiler.importers.torch import import_torchscript
from service.compiler.qnn import graph
from service.core.errors import Unsupported, UnsupportedOperator
from tests.support.torchscript import FIXTURES, imported, quantized, script

IMAGE = {"": (1, 3, 8, 8)}


def test_control_flow_may_depend_on_shapes() -> None:
    lines = [
        "if torch.ne(torch.len(torch.size(q)), 4):",
        '  ops.prim.RaiseException("wrong", "builtins.ValueError")',
        "else:",
        "  pass",
        "a, b, = (torch.size(q, 2), torch.size(q, 3))",
        "y = torch.reshape(q, [1, torch.mul(a, b), -1])",
    ]
    assert import_torchscript(quantized(*lines), shapes=IMAGE).signature.outputs[0].shape == (1, 64, 3)
    with pytest.raises(Unsupported, match="the model itself rejects its input: 'wrong'"):
        import_torchscript(quantized(*lines), shapes={"": (3, 8, 8)})


def test_all_obstacles_are_named_at_once() -> None:
    data = quantized(
        "a = torch.relu(q)",
        "b = ops.quantized.leaky(a, 0.1)",
        "c = torch.erfinv(b)",
        "d = torch.erfinv(a)",
        "y = torch.relu(c)",
    )
    with pytest.raises(UnsupportedOperator) as caught:
        import_torchscript(data, shapes=IMAGE)
    assert "quantized::leaky, aten::erfinv (2 times)" in caught.value.message
    assert caught.value.message.endswith("; the first is quantized::leaky → b")
    assert (caught.value.op, caught.value.tensor) == ("quantized::leaky", "b")


def test_the_message_for_a_float_model_says_to_quantize_it() -> None:
    (notice,) = facts_of(import_torchscript(script(["return torch.matmul(x, x)"]), shapes=IMAGE)).notices
    assert notice.startswith("this model is float and not quantized: quantize it with octet quantize")


def test_a_float_model_is_refused_for_its_unsupported_operators() -> None:
    with pytest.raises(UnsupportedOperator, match="aten::erfinv"):
        import_torchscript(script(["return torch.erfinv(x)"]), shapes=IMAGE)


def test_control_flow_that_depends_on_data_is_refused() -> None:
    with pytest.raises(Unsupported, match="branches on the values of a tensor"):
        import_torchscript(quantized("if q:", "  y = q", "else:", "  y = q"), shapes=IMAGE)


def test_the_shape_of_an_input_must_be_known() -> None:
    data = quantized("y = torch.relu(q)")
    with pytest.raises(Unsupported, match="does not contain the shape of the input x") as caught:
        import_torchscript(data)
    assert "--input-shape x=" in str(caught.value.hint)
    with pytest.raises(Unsupported, match="no input z"):
        import_torchscript(data, shapes={"z": (1, 3)})


def test_a_traced_model_contains_its_shapes() -> None:
    (traced,) = [path for path in FIXTURES if path.stem == "residual"]
    assert import_torchscript(traced.read_bytes()).signature == imported(traced).signature


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("y = torch.relu(q, 1, 2, 3)", r"of \(quantized tensor, 1, 2, 3\)"),
        ("y = torch.max_pool2d(q, [3, 3], [1, 1], [2, 2])", "padding 2 for a window of 3"),
        ("y = torch.max_pool2d(q, [9, 9])", "a window of 9, which is larger than the 8 padded elements"),
        ("y = torch.max_pool2d(q, [0, 1])", "an integer of at least 1"),
        ("y = torch.reshape(q, [7, -1])", "cannot reshape"),
        ("y = torch.permute(q, [0, 1, 2, 2])", "cannot permute"),
        ("y = torch.flatten(q, 9)", "axis 9, but its input has 4 dimensions"),
        ("y = torch.cat([], 1)", "list of tensors"),
        ("y = torch.cat([q, torch.reshape(q, [1, 3, 64, 1])], 1)", "part 1"),
        ("y = ops.quantized.conv2d(q, 3, 0.1, 0)", "no packed weights"),
        ("y = ops.quantized.add(q, q, 0., 0)", "scale must be positive"),
        ("y = ops.quantized.add(q, q, 0.1, 300)", "zero point"),
        ("y = ops.quantized.add(q, 3, 0.1, 3)", "a number as an operand, and a scale"),
    ],
)
def test_operands_that_do_not_fit_are_refused(line: str, what: str) -> None:
    """PyTorch loads such a file and may have an overload that Octet does not have, so the error must not report a
    damaged file.
    """
    with pytest.raises(UnsupportedOperator, match=what) as caught:
        import_torchscript(quantized(line), shapes=IMAGE)
    assert caught.value.op
    assert caught.value.stage == "import"
    assert "operands or arguments" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("expression", "size"),
    [
        ('torch.div(torch.size(q, 2), 3, rounding_mode="trunc")', 8 // 3),
        ('torch.div(-7, 2, rounding_mode="trunc")', -3),
        ('torch.div(-7, 2, rounding_mode="floor")', -4),
        ("torch.floor_divide(-7, 2)", -4),
        ("torch.floordiv(torch.size(q, 3), 3)", 2),
        ("torch.remainder(-7, 3)", 2),
        ("torch.fmod(-7, 3)", -1),
        ("torch.sub(10, 2, alpha=3)", 4),
        ("torch.rsub(2, 10)", 8),
        ("torch.Int(torch.sqrt(torch.mul(torch.size(q, 2), torch.size(q, 3))))", 8),
        ("torch.len(torch.mul([1], 5))", 5),
        ("torch.Int(torch.detach(torch.floor_divide(torch.size(q, 2), 3)))", 2),
    ],
)
def test_sizes_are_computed_as_in_pytorch(expression: str, size: int) -> None:
    """The size is the number of the 64 channels that remain."""
    lines = [f"n = torch.add({expression}, 10)", "y = torch.slice(torch.reshape(q, [3, 64]), 1, 0, n)"]
    model = import_torchscript(quantized(*lines), shapes=IMAGE)
    assert model.signature.outputs[0].shape == (3, size + 10)


def test_scales_of_products_with_numbers_are_rounded_once() -> None:
    """PyTorch's quantizers store such scales in float64, and its kernels read them as float32."""
    exact = np.float32(0.05 * 0.3 * 0.7)
    assert exact != np.float32(float(np.float32(float(np.float32(0.05)) * 0.3)) * 0.7)
    lines = ["a = ops.quantized.mul(q, 0.3)", "b = torch.reshape(a, [1, -1])", "y = ops.quantized.mul(0.7, b)"]
    module = import_torchscript(quantized(*lines), shapes=IMAGE).module
    (last,) = [each for _, _, each in graph.operations(graph.main_of(module)) if each and each.name == "qnn.dequantize"]
    assert np.float32(last.per_tensor("in_type").scale) == exact


TABLE = b"\x80\x02c__torch__\nNet\n)\x81}(X\x04\x00\x00\x00cellc__torch__.torch.classes.my\nTableBase\n)\x81)bub."


@pytest.mark.parametrize(
    ("record", "content", "what"),
    [
        ("data__pkl", TABLE, "'my.TableBase' cannot be compiled"),
        ("constants__pkl", b"\x80\x02ctorch\nsparse_coo\n.", "names 'torch.sparse_coo', which Octet does not read"),
    ],
)
def test_files_that_only_pytorch_reads_are_not_called_damaged(record: str, content: bytes, what: str) -> None:
    with pytest.raises(Unsupported, match=what) as caught:
        import_torchscript(script(["c = self.cell", "return x"], **{record: content}), shapes=IMAGE)
    assert caught.value.hint


def test_numbers_of_unknown_tensors_are_not_separate_obstacles() -> None:
    lines = ["e = torch.erfinv(q)", "n = ops.prim.NumToTensor(torch.size(e, 0))", "y = torch.reshape(q, [n, -1])"]
    with pytest.raises(UnsupportedOperator, match="1 of 5 operators cannot be compiled: aten::erfinv"):
        import_torchscript(quantized(*lines), shapes=IMAGE)
