"""Hostile pickles are refused, and nothing in them is called."""

from __future__ import annotations

import os
import pickle
from typing import Any

import numpy as np
import pytest

from service.compiler.importers.torch import import_torchscript
from service.compiler.importers.torch.unpickler import Unpickler
from service.core.errors import MalformedModel, Unsupported
from tests.support.torchscript import EMPTY_MODULE, NO_CONSTANTS, archive, script

SHAPES = {"": (2, 3, 12, 12)}


class Calls:
    """An object that `pickle` writes as a call of any given function."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = function, arguments

    def __reduce__(self) -> Any:
        return self.call


MARKER = "OCTET_TEST_WAS_EXECUTED"


CALLS = {
    "os.system": Calls(os.system, f"touch {MARKER}"),
    "builtins.eval": Calls(eval, f"open('{MARKER}', 'w')"),
    "nested": Calls(list, [Calls(exec, f"open('{MARKER}', 'w')")]),
    "attribute": Calls(getattr, "text", "join"),
    "numpy": np.arange(3),
}


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4, 5])
@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("record", ["data.pkl", "constants.pkl", "traced_inputs.pkl"])
def test_a_pickle_that_calls_something_is_refused(
    record: str, name: str, protocol: int, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    good = {"data.pkl": EMPTY_MODULE, "constants.pkl": NO_CONSTANTS}
    code = "class Net(Module):\n  def forward(self: __torch__.Net,\n    x: Tensor) -> Tensor:\n    return x\n"
    data = archive({**good, "code/__torch__.py": code, record: pickle.dumps(CALLS[name], protocol)})
    with pytest.raises(MalformedModel, match="pickle"):
        import_torchscript(data, shapes=SHAPES)
    assert not list(tmp_path.iterdir())


def machine() -> Unpickler:
    return Unpickler(
        {"collections.OrderedDict": dict}, {}, lambda module: module == "__torch__", lambda reference: None
    )


@pytest.mark.parametrize(
    "program",
    [
        b"",
        b".",
        b"(.",
        b"\x80\x02",
        b"cposix\nsystem\n.",
        b"\x80\x04\x8c\x05posix\x8c\x06system\x93.",  # the function's name is on the stack
        b"cos\nsystem\n(X\x02\x00\x00\x00lstR.",
        b"ccollections\nOrderedDict\n)\x81.",  # An instance of a class that the archive does not define.
        b"c__torch__\nNet\n)R.",  # A call of a class.
        b"(i__main__\nNet\n.",
        b"]h\x00.",
        b"e.",
        b"}(X\x01\x00\x00\x00au.",
        b"}(})u.",
        b"\x8a\xff" + b"\x01" * 255 + b".",  # an integer of 2040 bits
        b"cos\x2e\x2e/etc\npasswd\n.",
        b"\x97.",
    ],
)
def test_programs_that_picklers_never_write_are_refused(program: bytes) -> None:
    with pytest.raises(MalformedModel):
        machine().run(program)


def test_the_memory_of_the_stack_machine_is_bounded() -> None:
    with pytest.raises(MalformedModel, match="too long"):
        machine().run(b"\x80\x02" + b"(" * (1 << 21) + b".")


def test_a_value_of_exponential_size_is_never_traversed() -> None:
    """Each tuple contains the previous one twice, so comparing, printing or copying them would visit 2**60 leaves."""
    bomb = b")q\x00" + b"".join(b"h%ch%c\x86q%c" % (i, i, i + 1) for i in range(60))
    bodies = [
        ["return CONSTANTS.c0"],
        ["a = CONSTANTS.c0", "return torch.relu(a)"],
        ["a = torch.eq(CONSTANTS.c0, CONSTANTS.c0)", "return x"],
        ["return torch.quantize_per_tensor(x, CONSTANTS.c0, CONSTANTS.c0, 13)"],
    ]
    for body in bodies:
        with pytest.raises((MalformedModel, Unsupported)):
            import_torchscript(script(body, constants__pkl=b"\x80\x02" + bomb + b"\x85."), shapes=SHAPES)
