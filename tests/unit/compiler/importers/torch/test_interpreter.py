"""Code that is not a model is refused."""

from __future__ import annotations

import pytest

from service.compiler.importers.torch import import_torchscript
from service.core.errors import MalformedModel, Unsupported
from tests.support.torchscript import EMPTY_MODULE, NO_CONSTANTS, archive, script

SHAPES = {"": (2, 3, 12, 12)}


@pytest.mark.parametrize(
    ("body", "what"),
    [
        (["return " + "(" * 150 + "x" + ")" * 150], None),
        (["return " + "-" * 3000 + "1"], "nested|parsed"),
        (["return (self).forward(x, )"], "endlessly"),
        (["while True:", "  pass", "return x"], "too long"),
        (["for i in range(9223372036854775807):", "  pass", "return x"], "too long"),
        (["a = 3", "for i in range(64):", "  a = torch.mul(a, a)", "return x"], "64 bits"),
        (["a = [1]", "for i in range(64):", "  a = torch.add(a, a)", "return x"], "too long"),
        (["a = [1]", "for i in range(64):", "  _ = torch.extend(a, a)", "return x"], "too long"),
        (["import os", "return x"], "Import"),
        (["return __import__('os').system('true')"], "Call|method"),
        (["return x.__class__.__mro__"], "attribute"),
        (["return (lambda: x)()"], "Call"),
        (["return [y for y in (1,)]"], "ListComp"),
        (["return getattr(self, '__class__')"], "attribute"),
        (["return open('/etc/passwd')"], "Call"),
        (["return CONSTANTS.c0"], "no constant"),
        (["return __torch__.missing(x)"], "does not define"),
        (["with open('x'):", "  pass"], "With"),
        (["global x", "return x"], "Global"),
        (["a = b = x", "return a"], "Assign"),
        (["return torch.quantize_per_tensor(x, " + "9" * 400 + ", 0, 13)"], "64 bits"),
        (["return __torch__.Net(*x)"], "Starred|define"),
    ],
)
def test_code_that_is_not_a_model_is_refused(body: list[str], what: str | None) -> None:
    with pytest.raises((MalformedModel, Unsupported), match=what):
        import_torchscript(script(body), shapes=SHAPES)


@pytest.mark.parametrize("parameters", ["a=1, /, b=2", "*a", "**a", "a, *, b=1"])
def test_functions_with_unusual_parameters_are_refused(parameters: str) -> None:
    code = (
        f"def helper({parameters}):\n  return 1\n"
        "class Net(Module):\n  def forward(self, x):\n    return __torch__.helper(x, )\n"
    )
    records: dict[str, bytes | str] = {
        "data.pkl": EMPTY_MODULE,
        "code/__torch__.py": code,
        "constants.pkl": NO_CONSTANTS,
    }
    with pytest.raises(MalformedModel, match="unusual parameters"):
        import_torchscript(archive(records), shapes=SHAPES)


def test_calls_and_expressions_nested_in_each_other_are_refused() -> None:
    deep = "torch.relu(" * 90
    functions = "".join(f"def f{n}(x):\n  return {deep}__torch__.f{n + 1}(x){')' * 90}\n" for n in range(99))
    code = functions + "class Net(Module):\n  def forward(self, x):\n    return __torch__.f0(x)\n"
    records: dict[str, bytes | str] = {
        "data.pkl": EMPTY_MODULE,
        "code/__torch__.py": code,
        "constants.pkl": NO_CONSTANTS,
    }
    with pytest.raises(MalformedModel, match="nested too deep"):
        import_torchscript(archive(records), shapes=SHAPES)
