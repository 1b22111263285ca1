"""The client for programs that use asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from os import PathLike
from types import TracebackType
from typing import Any, Self

from octet.client import Build, Client
from octet.evaluation import Evaluation
from service.core.models.alias import STABLE
from service.core.models.arrays import Array


class AsyncClient:
    """`octet.Client` with coroutines. Each call runs in a thread, so calls may overlap."""

    def __init__(self, server: str = "http://localhost:8080", *, key: str | None = None) -> None:
        """The arguments are those of `octet.Client`."""
        self._client = Client(server, key=key)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """See `Client.close`."""
        await asyncio.to_thread(self._client.close)

    async def push(
        self,
        source: str | PathLike[str],
        name: str | None = None,
        *,
        target: str = "host",
        numerics: str | None = None,
        wait: bool = True,
    ) -> Build:
        """See `Client.push`."""
        return await asyncio.to_thread(self._client.push, source, name, target=target, numerics=numerics, wait=wait)

    async def wait(self, build: str) -> Build:
        """See `Client.wait`."""
        return await asyncio.to_thread(self._client.wait, build)

    async def builds(self, model: str | None = None, *, limit: int = 20) -> list[Build]:
        """See `Client.builds`."""
        return await asyncio.to_thread(self._client.builds, model, limit=limit)

    async def models(self) -> list[str]:
        """See `Client.models`."""
        return await asyncio.to_thread(self._client.models)

    async def predict(self, model: str, *inputs: Array | bytes, version: int | None = None) -> Any:
        """See `Client.predict`."""
        return await asyncio.to_thread(self._client.predict, model, *inputs, version=version)

    async def attach_score(self, evaluation: Evaluation) -> None:
        """See `Client.attach_score`."""
        await asyncio.to_thread(self._client.attach_score, evaluation)

    async def promote(
        self,
        model: str,
        version: int,
        *,
        alias: str = STABLE,
        percent: int = 100,
        least: Mapping[str, float] | None = None,
    ) -> None:
        """See `Client.promote`."""
        await asyncio.to_thread(self._client.promote, model, version, alias=alias, percent=percent, least=least)

    async def live_ranges(self, model: str) -> dict[str, tuple[float, float]]:
        """See `Client.live_ranges`."""
        return await asyncio.to_thread(self._client.live_ranges, model)

    async def rollback(self, model: str, *, alias: str = STABLE, away_from: int) -> None:
        """See `Client.rollback`."""
        await asyncio.to_thread(self._client.rollback, model, alias=alias, away_from=away_from)

    async def delete(self, model: str, version: int | None = None, *, force: bool = False) -> None:
        """See `Client.delete`."""
        await asyncio.to_thread(self._client.delete, model, version, force=force)

    def __repr__(self) -> str:
        return f"<octet.AsyncClient of {self._client!r}>"
