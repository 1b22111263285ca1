"""The gRPC listener: a service that `service.api.ops.server` starts and stops with its own."""

from __future__ import annotations

import asyncio

import grpc
from grpc import aio
from grpc_health.v1.health_pb2_grpc import add_HealthServicer_to_server

from service.api.grpc.guard import GrpcGuard
from service.api.grpc.health import Health
from service.api.grpc.interceptor import DrainInterceptor
from service.api.grpc.service import NAME, InferenceService
from service.api.ops.peers import HEAD_BYTES, MAX_CALLS
from service.api.services import Services
from service.core.certificate import Certificate
from service.core.errors import Conflict


class GrpcServer:
    """For the event loop that the registry lives on."""

    def __init__(self, services: Services, host: str, port: int, certificate: Certificate | None = None) -> None:
        """Listens to nothing yet.

        Args:
            port: 0 takes a free one; it may be shared with a socket that reserves it (`service.api.grpc.port`).
            certificate: None where it speaks in plain text.
        """
        self._stopping = asyncio.Event()
        self._service = InferenceService(
            services.registry, services.metrics, services.audit, self._stopping, services.tracing
        )
        self._draining, self._guard = DrainInterceptor(), GrpcGuard(services.access, services.metrics)
        self._certificate = certificate
        self._address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._options = (
            # Counted as it arrives, and again as it is inflated.
            ("grpc.max_receive_message_length", services.settings.max_predict_bytes + HEAD_BYTES),
            ("grpc.max_send_message_length", -1),
            ("grpc.so_reuseport", 1),
        )
        self._server: aio.Server | None = None

    async def start(self) -> int:
        """Takes calls from now on; the port on which it does, where 0 was asked for.

        Raises:
            Conflict: the port is taken.
        """
        self._server = aio.server(
            interceptors=[self._draining, self._guard], options=self._options, maximum_concurrent_rpcs=MAX_CALLS
        )
        self._server.add_generic_rpc_handlers((self._service.handler(),))
        add_HealthServicer_to_server(Health(NAME, self._stopping), self._server)
        try:
            port = self._listen(self._server)
        except RuntimeError as error:
            raise Conflict(f"cannot listen on {self._address} for gRPC", hint="choose another --grpc-port") from error
        await self._server.start()
        return port

    def _listen(self, server: aio.Server) -> int:
        if self._certificate is None:
            return int(server.add_insecure_port(self._address))
        return int(server.add_secure_port(self._address, _credentials(self._certificate)))

    async def stop(self, grace_s: float) -> None:
        """Takes no more requests of a stream, and soon no new calls; what is under way has `grace_s` to end.

        May be called again, while it lasts and after; it returns when no call is under way.
        """
        self._stopping.set()
        if self._server is not None:
            await self._draining.close()
            await self._server.stop(grace_s)


def _credentials(certificate: Certificate) -> grpc.ServerCredentials:
    """Ask `certificate` at each handshake."""
    given = certificate.pair()

    def configuration() -> grpc.ServerCertificateConfiguration:
        return grpc.ssl_server_certificate_configuration([(given.key_pem, given.cert_pem)])

    def renewed() -> grpc.ServerCertificateConfiguration | None:
        nonlocal given
        before, given = given, certificate.pair()
        return None if given is before else configuration()

    return grpc.dynamic_ssl_server_credentials(configuration(), renewed, require_client_authentication=False)
