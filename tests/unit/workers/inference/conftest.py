from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any

import pytest

from service.core.models.signature import ModelSignature, TensorSpec
from service.workers.inference import Registry
from tests.support.fake_plane import Blank, FakePlane
from tests.support.tables import LESSER_TARGET, TARGET, Tables

Serving = Callable[..., AbstractAsyncContextManager[Registry]]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def plane() -> FakePlane:
    return FakePlane()


@pytest.fixture
def serving(plane: FakePlane) -> Serving:
    return partial(registry_of, plane)


@asynccontextmanager
async def registry_of(
    plane: FakePlane, tables: Tables, refresh_s: float = 0.01, **options: Any
) -> AsyncIterator[Registry]:
    """Returns a registry that makes `plane` load the models in `tables`."""
    given = {"aliases": tables, "targets": (TARGET, LESSER_TARGET), "refresh_s": refresh_s, **options}
    registry = Registry(tables, tables, tables, plane, **given)
    plane.report = registry.apply_report
    try:
        yield registry
    finally:
        await registry.close()


def blank() -> Blank:
    return Blank(ModelSignature((TensorSpec("x", "INT8", (1, 3)),), (TensorSpec("y", "INT8", (1, 3)),)))
