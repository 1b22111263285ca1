"""What a new worker loads before it takes requests: what its pool's others have in memory. None then waits for it."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Collection, Sequence

from service.core.errors import OctetError
from service.core.worker import Worker
from service.workers.inference.registry import Registry
from service.workers.inference.routes import Name

_logger = logging.getLogger(__name__)


def held_by(pool: str, workers: Collection[Worker]) -> list[tuple[str, str]]:
    """What the workers of a pool have in memory, as they say it; what most of them have first."""
    holders = Counter(name for worker in workers if worker.pool == pool for name in worker.loaded)
    return sorted(holders, key=lambda name: (-holders[name], name))


async def take_over(find: Callable[[], Sequence[Name]], registry: Registry, within_s: float) -> None:
    """Loads what `find` names, in that order, until one model drives another of them out of memory.

    What cannot be loaded is logged. What is being loaded when the time is over goes on beside requests.

    Args:
        find: blocks.
    """
    loaded: list[Name] = []
    try:
        async with asyncio.timeout(within_s):
            for name in await asyncio.to_thread(find):
                try:
                    await registry.resolve(*name)
                except OctetError as error:
                    _logger.warning("model %s, which others of the pool have, cannot be loaded: %s", name[0], error)
                    continue
                loaded.append(name)
                if not all(registry.answers(*each) for each in loaded):
                    _logger.info("of what the pool's others have there is room for %d models", len(loaded) - 1)
                    return
    except OctetError as error:
        _logger.warning("it is not known what others of the pool have in memory: %s", error)
    except TimeoutError:
        _logger.warning("not all is loaded that others of the pool have: requests are taken after %g s", within_s)
