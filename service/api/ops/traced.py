"""Decides whether requests are traced. OpenTelemetry is imported only if requests are traced."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from service.core.settings import Settings

if TYPE_CHECKING:
    from service.api.ops.tracing import Tracing

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")


def start_tracing(settings: Settings) -> Tracing | None:
    """Starts tracing if an endpoint is set, in Octet's settings or in OpenTelemetry's own environment variables.
    Returns None otherwise.
    """
    if os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true" or os.environ.get("OTEL_TRACES_EXPORTER") == "none":
        return None
    if not settings.trace_endpoint and not any(map(os.environ.get, _ENDPOINTS)):
        return None
    from service.api.ops.tracing import Tracing

    return Tracing(settings.trace_endpoint, settings.trace_ratio)
