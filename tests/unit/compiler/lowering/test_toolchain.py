"""The compiler's fingerprint."""

from __future__ import annotations

import pytest

from service.compiler.lowering import pass_order, toolchain
from service.compiler.qnn.numerics import get_mode
from service.core.builds.numerics import LITERT_REFERENCE
from service.core.target import parse_target

TARGET, MODE = parse_target("x86-64-v4+vnni"), get_mode(LITERT_REFERENCE)


def test_another_order_is_another_build(monkeypatch: pytest.MonkeyPatch) -> None:
    source = toolchain.core_digest()
    before = toolchain.build_inputs(source, TARGET, LITERT_REFERENCE).key
    toolchain._fingerprint.cache_clear()
    monkeypatch.setattr(pass_order, "ORDER", dict(reversed(pass_order.ORDER.items())))
    after = toolchain.build_inputs(source, TARGET, LITERT_REFERENCE).key
    toolchain._fingerprint.cache_clear()
    assert before != after
