"""The endpoint `/metrics`, for Prometheus."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Response
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4

from service.api.injected import ServicesOf

router = APIRouter(tags=["metrics"])


@router.get(
    "/metrics",
    summary="Read the metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
)
async def scrape(services: ServicesOf) -> Response:
    """Metrics of requests, queues, computation, builds and the cache, in Prometheus' text format."""
    await services.plane.gather()
    return Response(await asyncio.to_thread(services.metrics.text), media_type=CONTENT_TYPE_PLAIN_0_0_4)
