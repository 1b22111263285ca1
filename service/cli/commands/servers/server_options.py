"""Options of the long-running commands: `octet serve` and the roles of a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from service.core.system.logs import LogFormat

HostOption = Annotated[str | None, typer.Option("--host", help="The address to listen on.")]
PortOption = Annotated[int | None, typer.Option("--port", help="The port for HTTP; 0 chooses a free one.")]
GrpcPortOption = Annotated[
    int | None,
    typer.Option("--grpc-port", help="The port for gRPC; 0 chooses a free one.", show_default="the one after --port"),
]
TlsCertOption = Annotated[
    Path | None, typer.Option("--tls-cert", help="A PEM file with the certificate chain, for HTTPS and gRPC over TLS.")
]
TlsKeyOption = Annotated[Path | None, typer.Option("--tls-key", help="A PEM file with the certificate's private key.")]
NoGrpcOption = Annotated[bool, typer.Option("--no-grpc", help="Serve HTTP only.")]
ThreadsOption = Annotated[int | None, typer.Option("--threads", help="Threads per prediction; 0: one for each core.")]
QueueSizeOption = Annotated[int | None, typer.Option("--queue-size", help="How many requests may wait for a model.")]
InstancesOption = Annotated[
    int | None,
    typer.Option("--instances", help="Concurrent predictions per model; 0: one for each core, up to 8."),
]
LogFormatOption = Annotated[
    LogFormat | None,
    typer.Option("--log-format", help="The log's format; json writes one object per line.", show_default="text"),
]
VerboseOption = Annotated[bool, typer.Option("--verbose", help="Log normal operation, not only problems.")]
MaxBatchOption = Annotated[
    int | None,
    typer.Option("--max-batch", help="Most samples to combine in one call; 0: the largest size built."),
]
MaxDelayOption = Annotated[
    float | None, typer.Option("--max-delay-s", help="How long a call waits for more requests to combine.")
]
NoAuthOption = Annotated[
    bool, typer.Option("--no-auth", help="Require no API key, even if others can reach the address.")
]
