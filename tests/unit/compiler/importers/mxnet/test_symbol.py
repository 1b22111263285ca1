"""Invalid symbols are refused."""

from __future__ import annotations

import pytest

from service.compiler.importers.auto import import_model
from service.compiler.importers.mxnet.package import pack
from service.core.errors import MalformedModel
from tests.support.mxnet_models import params_of


@pytest.mark.parametrize("symbol", [b"", b"[]", b"{}", b"[" * 100_000, b'{"nodes": [], "heads": []}', b"\xff\xfe"])
def test_an_invalid_symbol_is_refused(symbol: bytes) -> None:
    with pytest.raises(MalformedModel):
        import_model(pack(symbol, params_of("sg_residual")))
