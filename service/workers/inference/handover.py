"""Before a new worker gets requests, loads the models that the other workers of its pool have in memory."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Collection, Sequence

from service.core.cluster.worker import Worker
from service.core.errors import OctetError
from service.workers.inference.registry import Registry
from service.workers.inference.routes import Name

_logger = logging.getLogger(__name__)


def loaded_in(pool: str, workers: Collection[Worker]) -> list[tuple[str, str]]:
    """Returns the models that the workers of a pool report as loaded. The models that most workers have come first."""
    holders = Counter(name for worker in workers if worker.pool == pool for name in worker.loaded)
    return sorted(holders, key=lambda name: (-holders[name], name))


async def take_over(find: Callable[[], Sequence[Name]], registry: Registry, within_s: float) -> None:
    """Loads the models that `find` returns, in that order, until one of them evicts another from memory.

    A model that cannot be loaded is logged. When the time is over, a load in progress continues while requests are
    already served.

    Args:
        find: may block.
    """
    loaded: list[Name] = []
    try:
        async with asyncio.timeout(within_s):
            for name in await asyncio.to_thread(find):
                try:
                    await registry.resolve(*name)
                except OctetError as error:
                    _logger.warning("cannot load model %s, which other workers of the pool have: %s", name[0], error)
                    continue
                loaded.append(name)
                if not all(registry.answers(*each) for each in loaded):
                    _logger.info(
                        "memory is full: it has room for %d of the models of other workers in the pool", len(loaded) - 1
                    )
                    return
    except OctetError as error:
        _logger.warning("cannot find out which models other workers of the pool have: %s", error)
    except TimeoutError:
        _logger.warning("not all models of the pool were loaded within %g s: accepting requests now", within_s)
