"""Programs become modules; damaged and unsupported ones are refused with one sentence."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import pytest

from service.compiler.importers.auto import import_model
from service.compiler.importers.detect import EXECUTORCH
from service.core.errors import MalformedModel, OctetError, Unsupported
from tests.support.executorch_programs import NAMES, program


def test_a_program_has_numbered_inputs_and_outputs() -> None:
    imported = import_model(program("residual"))
    assert imported.format == EXECUTORCH
    assert [(spec.name, spec.shape) for spec in imported.signature.inputs] == [("input_0", (1, 3, 12, 12))]
    assert [(spec.name, spec.shape) for spec in imported.signature.outputs] == [("output_0", (1, 10))]


def test_operators_are_announced_with_their_delegate() -> None:
    announced: list[str] = []
    import_model(program("normalized"), at=lambda op, tensor: announced.append(op))
    assert announced[:2] == ["XNNPACK Convert #0", "XNNPACK FullyConnected #1"]
    assert "aten::layer_norm #0" in announced


def test_another_delegate_is_refused_by_name() -> None:
    with pytest.raises(Unsupported, match="calls the delegate ZnnpackBackend; only XNNPACK's"):
        import_model(program("dense").replace(b"XnnpackBackend", b"ZnnpackBackend"))


def test_a_kernel_without_a_rule_is_refused_by_name() -> None:
    with pytest.raises(Unsupported, match=r"1 of 1 operators cannot be compiled: aten::embeddinx"):
        import_model(program("embedded").replace(b"aten::embedding", b"aten::embeddinx"))


def test_another_shape_is_refused() -> None:
    with pytest.raises(Unsupported, match="already fixes the shapes"):
        import_model(program("dense"), shapes={"": (4, 20)})


@pytest.mark.parametrize("name", ["dense", "four_bits_in_blocks"])
def test_every_truncation_is_refused(name: str) -> None:
    data = program(name)
    for size in range(64, len(data) - 64, 331):
        with pytest.raises(OctetError):
            import_model(data[:size])


@pytest.mark.parametrize("name", [name for name in NAMES if name in ("dense", "attention", "dynamic_pixels")])
def test_changed_bytes_are_compiled_or_refused(name: str) -> None:
    """Every fault becomes an error of Octet, never another exception."""
    data, random = program(name), np.random.default_rng(0)
    for _ in range(20):
        changed = bytearray(data)
        for position in random.integers(8, len(data), 6):
            changed[position] = random.integers(0, 256)
        with suppress(OctetError):
            import_model(bytes(changed))


def test_an_output_that_nothing_computes_is_malformed() -> None:
    """The only instruction of the program calls its delegate. Without it, the output has no value."""
    data = program("dense")
    with pytest.raises(MalformedModel):
        import_model(data[:8] + b"eh01" + data[12:])
