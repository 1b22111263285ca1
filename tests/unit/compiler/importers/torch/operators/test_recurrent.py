"""LSTM and GRU with ranges that are computed at run time: which ones are refused, and why. Results are compared with
PyTorch's in `tests/conformance/test_torch.py`.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from io import BytesIO

import pytest

from service.compiler.importers.torch import import_torchscript
from service.core.errors import MalformedModel, OctetError, Unsupported, UnsupportedOperator
from tests.support.torchscript import FOLDER, script

SHAPE = {"": (5, 1, 6)}


def edited(edit: Callable[[str, bytes], bytes]) -> bytes:
    """Returns the traced fixture, with each record replaced by `edit(name, record)`."""
    changed = BytesIO()
    with zipfile.ZipFile(FOLDER / "recurrent_traced.pt") as archive, zipfile.ZipFile(changed, "w") as written:
        for name in archive.namelist():
            written.writestr(name, edit(name, archive.read(name)))
    return changed.getvalue()


def with_code(old: bytes, new: bytes) -> bytes:
    found = []

    def edit(name: str, record: bytes) -> bytes:
        if name.endswith(".py") and old in record:
            found.append(name)
        return record.replace(old, new) if name.endswith(".py") else record

    data = edited(edit)
    assert found
    return data


def with_state(old: bytes, new: bytes) -> bytes:
    assert len(old) == len(new)
    return edited(lambda name, record: record.replace(old, new) if name.endswith("/data.pkl") else record)


def refusal(data: bytes, shape: tuple[int, ...] = (5, 1, 6)) -> OctetError:
    with pytest.raises((Unsupported, MalformedModel)) as caught:
        import_torchscript(data, shapes={"": shape})
    return caught.value


def test_the_fixture_itself_is_imported() -> None:
    model = import_torchscript(edited(lambda _, record: record), shapes=SHAPE)
    assert [each.shape for each in model.signature.outputs] == [(5, 1, 4), (4, 1, 9), (4, 1, 9), (1, 1, 7)]


def test_too_many_steps_are_refused() -> None:
    error = refusal((FOLDER / "recurrent_traced.pt").read_bytes(), (257, 1, 6))
    assert isinstance(error, UnsupportedOperator)
    assert "has 257 steps; at most 256 can be compiled" in error.message


def test_an_input_of_another_width_is_refused() -> None:
    error = refusal((FOLDER / "recurrent_traced.pt").read_bytes(), (5, 1, 7))
    assert "cannot multiply shape [1, 5, 7] by weights for 6 values" in error.message


def test_weights_of_another_type_are_refused() -> None:
    error = refusal(with_state(b"quantized_dynamic", b"quantized_fp16___"))
    assert "the parameters 'quantized_fp16___' of an LSTM or GRU cannot be compiled" in error.message
    assert "quantize_dynamic" in (error.hint or "")


def test_a_cell_without_parts_is_malformed() -> None:
    cell = (
        b"\x80\x02c__torch__\nNet\n)\x81}(X\x04\x00\x00\x00cellc__torch__.torch.classes.rnn\nCellParamsBase\n)\x81)bub."
    )
    error = refusal(script(["c = self.cell", "return x"], data__pkl=cell))
    assert isinstance(error, MalformedModel)
    assert "a CellParamsBase whose parts do not fit together" in error.message


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (b"True, 2, 0., False, True", b"True, 2, 0.5, True, True", "drops values at random, as in training"),
        (b"True, 2, 0., False, True", b"True, 3, 0., False, True", "has the parameters of 4 cells, not of 6"),
        (b"True, 2, 0., False, True", b"True, 0, 0., False, True", "not an integer of at least 1"),
        (b"torch.quantized_gru", b"torch.quantized_lstm", "other operands than a tensor of steps and a pair of states"),
        (b", 9], dtype=6", b", 8], dtype=6", r"has an initial state [4, 1, 8], not [4, 1, 9]"),
        (b", 9], dtype=6", b", 9000000000], dtype=6", "not an integer"),
        (b", 9], dtype=6", b", 90000000], dtype=6", "constants can be compiled"),
        (b", 9], dtype=6", b", 9], dtype=5", "has a type that cannot be compiled"),
    ],
)
def test_other_arguments_are_refused(old: bytes, new: bytes, message: str) -> None:
    error = refusal(with_code(old, new))
    assert message in error.message
