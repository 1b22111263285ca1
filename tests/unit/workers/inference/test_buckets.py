"""A model that was built for several shapes answers each request by the smallest bucket that takes it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from service.core.build import Build
from service.core.errors import CorruptBlob, InvalidTensor
from service.core.options import with_sizes
from service.core.signature import ModelSignature, TensorSpec
from service.workers.inference import Registry
from tests.support.runners import Array, FunctionRunner
from tests.support.tables import TARGET, Tables

pytestmark = pytest.mark.anyio
SIZES = (4, 8, 16)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def tables() -> Tables:
    return Tables()


@pytest.fixture
async def registry(tables: Tables) -> AsyncIterator[Registry]:
    registry = Registry(tables, tables, tables, targets=(TARGET,), refresh_s=0.01)
    try:
        yield registry
    finally:
        await registry.close()


def runner(length: int, *, pads: bool = True) -> FunctionRunner:
    """Gives each element plus the length of the bucket, so that an answer says where it was computed."""
    inputs = (TensorSpec("ids", "INT64", (1, length)),)
    signature = ModelSignature(inputs, (TensorSpec("y", "INT64", (1, length)),), pads=pads)
    return FunctionRunner(signature, lambda ids: [ids + 100 * length])


def bucket(tables: Tables, length: int, load: Callable[[], FunctionRunner] | None = None) -> Build:
    build = tables.built("m", 1, load or partial(runner, length))
    options = with_sizes([1], {"ids": [1, list(SIZES)]})[SIZES.index(length)]
    tables.builds[0] = replace(build, options=options)
    return tables.builds[0]


def ids(length: int) -> Array:
    return np.arange(length, dtype=np.int64)[None]


async def asked(registry: Registry, length: int) -> list[int]:
    (answer,) = await registry.infer("m", None, [ids(length)])
    return [int(each) for each in np.asarray(answer)[0]]


async def test_each_length_has_its_bucket(tables: Tables, registry: Registry) -> None:
    tables.push("m")
    for length in reversed(SIZES):
        bucket(tables, length)
    for length, taken in ((1, 4), (4, 4), (5, 8), (16, 16)):
        assert await asked(registry, length) == [100 * taken + place for place in range(length)]
    served = await registry.acquire("m", None)
    assert served.signature.inputs[0].shape == served.signature.outputs[0].shape == (1, -1)
    served.release()


async def test_a_length_beyond_all_is_refused_with_their_list(tables: Tables, registry: Registry) -> None:
    tables.push("m")
    for length in SIZES:
        bucket(tables, length)
    with pytest.raises(InvalidTensor) as caught:
        await asked(registry, 17)
    assert caught.value.hint == "it is built for [1, 4], [1, 8], [1, 16], and shorter ones are filled up"


async def test_where_nothing_is_filled_up_only_the_sizes_are_answered(tables: Tables, registry: Registry) -> None:
    tables.push("m")
    for length in SIZES:
        bucket(tables, length, partial(runner, length, pads=False))
    assert await asked(registry, 8) == [800 + place for place in range(8)]
    with pytest.raises(InvalidTensor):
        await asked(registry, 7)


async def test_the_smallest_answers_until_the_others_are_built(tables: Tables, registry: Registry) -> None:
    tables.push("m")
    bucket(tables, 4)
    assert await asked(registry, 4) == [400, 401, 402, 403]
    with pytest.raises(InvalidTensor):
        await asked(registry, 8)
    bucket(tables, 8)
    await registry.refresh("m")
    assert (await asked(registry, 8))[0] == 800


async def test_a_bucket_that_is_lost_leaves_the_others(tables: Tables, registry: Registry) -> None:
    def lost() -> FunctionRunner:
        raise CorruptBlob("damaged")

    tables.push("m")
    bucket(tables, 4)
    bucket(tables, 8, lost)
    bucket(tables, 16)
    assert (await asked(registry, 8))[0] == 1600


async def test_a_newer_list_takes_the_place_of_an_older(tables: Tables, registry: Registry) -> None:
    tables.push("m")
    for length in SIZES:
        bucket(tables, length)
    other = with_sizes([1], {"ids": [1, [2, 3]]})
    for options, length in zip(other, (2, 3), strict=True):
        tables.builds[0] = replace(tables.built("m", 1, partial(runner, length)), options=options)
    assert (await asked(registry, 3))[0] == 300
    with pytest.raises(InvalidTensor):
        await asked(registry, 4)
