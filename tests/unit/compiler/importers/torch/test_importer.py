"""TorchScript is followed from the input to the outputs, and what is not compiled is named."""

from __future__ import annotations

import pytest

from service.compiler.facts import facts_of
from service.compiler.importers.torch import import_torchscript
from service.core.errors import MalformedModel, Unsupported, UnsupportedOperator
from tests.support.torchscript import FIXTURES, imported, quantized, script

IMAGE = {"": (1, 3, 8, 8)}


def test_shapes_decide_what_the_code_does() -> None:
    lines = [
        "if torch.ne(torch.len(torch.size(q)), 4):",
        '  ops.prim.RaiseException("wrong", "builtins.ValueError")',
        "else:",
        "  pass",
        "a, b, = (torch.size(q, 2), torch.size(q, 3))",
        "y = torch.reshape(q, [1, torch.mul(a, b), -1])",
    ]
    assert import_torchscript(quantized(*lines), shapes=IMAGE).signature.outputs[0].shape == (1, 64, 3)
    with pytest.raises(MalformedModel, match="the model itself rejects its input: 'wrong'"):
        import_torchscript(quantized(*lines), shapes={"": (3, 8, 8)})


def test_every_obstacle_is_named_at_once() -> None:
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
    assert caught.value.message.endswith("They are: quantized::leaky → b, aten::erfinv → c, aten::erfinv → d")
    assert (caught.value.op, caught.value.tensor) == ("quantized::leaky", "b")


def test_a_model_in_float_is_told_to_be_quantized() -> None:
    (notice,) = facts_of(import_torchscript(script(["return torch.matmul(x, x)"]), shapes=IMAGE)).notices
    assert notice.startswith("this model is float and not quantized: quantize it with octet quantize")


def test_a_model_in_float_is_refused_by_what_cannot_be_compiled() -> None:
    with pytest.raises(UnsupportedOperator, match="aten::erfinv"):
        import_torchscript(script(["return torch.erfinv(x)"]), shapes=IMAGE)


def test_a_decision_by_data_is_refused() -> None:
    with pytest.raises(Unsupported, match="chooses what to compute by the values of a tensor"):
        import_torchscript(quantized("if q:", "  y = q", "else:", "  y = q"), shapes=IMAGE)


def test_the_shape_of_an_input_has_to_be_known() -> None:
    data = quantized("y = torch.relu(q)")
    with pytest.raises(Unsupported, match="does not say what shape the input x has") as caught:
        import_torchscript(data)
    assert "--input-shape x=" in str(caught.value.hint)
    with pytest.raises(Unsupported, match="no input z"):
        import_torchscript(data, shapes={"z": (1, 3)})


def test_a_traced_model_carries_its_shapes() -> None:
    (traced,) = [path for path in FIXTURES if path.stem == "residual"]
    assert import_torchscript(traced.read_bytes()).signature == imported(traced).signature


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("y = torch.relu(q, 1, 2, 3)", "arguments that it does not accept"),
        ("y = torch.max_pool2d(q, [3, 3], [1, 1], [2, 2])", "pads by 2 a window of 3"),
        ("y = torch.max_pool2d(q, [9, 9])", "a window of 9 on 8 elements"),
        ("y = torch.max_pool2d(q, [0, 1])", "an integer of at least 1"),
        ("y = torch.reshape(q, [7, -1])", "makes"),
        ("y = torch.permute(q, [0, 1, 2, 2])", "permutes"),
        ("y = torch.flatten(q, 9)", "dimension 9 of 4"),
        ("y = torch.cat([], 1)", "list of tensors"),
        ("y = torch.cat([q, torch.reshape(q, [1, 3, 64, 1])], 1)", "part 1"),
        ("y = ops.quantized.conv2d(q, 3, 0.1, 0)", "no packed weights"),
        ("y = ops.quantized.add(q, q, 0., 0)", "scale must be positive"),
        ("y = ops.quantized.add(q, q, 0.1, 300)", "zero point"),
        ("y = ops.quantized.add(q, 3, 0.1, 3)", "a value that is not a tensor"),
    ],
)
def test_operators_that_do_not_fit_their_operands(line: str, what: str) -> None:
    with pytest.raises(MalformedModel, match=what) as caught:
        import_torchscript(quantized(line), shapes=IMAGE)
    assert caught.value.op
    assert caught.value.stage == "import"
