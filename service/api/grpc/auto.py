"""Chooses the listener that serves gRPC."""

from __future__ import annotations

from service.api.grpc.native import NativeGrpcServer
from service.api.grpc.server import GrpcServer
from service.api.services import Services
from service.core.certificate import Certificate


def grpc_server(
    services: Services, host: str, port: int, certificate: Certificate | None = None
) -> GrpcServer | NativeGrpcServer:
    """gRPC's own library where calls are encrypted, and else the native front. It listens to nothing yet.

    Args:
        port: 0 takes a free one; it may be shared with a socket that reserves it (`service.api.grpc.port`).
        certificate: None where it speaks in plain text.
    """
    if certificate is None:
        return NativeGrpcServer(services, host, port)
    return GrpcServer(services, host, port, certificate)
