"""Sends requests other than predictions from an API to its workers, to several of them at the same time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from http.client import HTTPConnection, HTTPException, HTTPMessage
from typing import NamedTuple, TypeVar

from service.core.cluster.worker import Worker, parse_address
from service.core.errors import NotReady
from service.workers.routing.security import Security

KEY_HEADER = "octet-cluster-key"
_ANSWER_S = 60.0  # the worker may have to load the model first
_AT_ONCE = 32

Result = TypeVar("Result")


class Response(NamedTuple):
    """The response of a worker, whatever its status."""

    status: int
    headers: HTTPMessage
    body: bytes


def post(
    worker: Worker, path: str, headers: Mapping[str, str], body: bytes, security: Security, most_bytes: int
) -> Response:
    """Sends a request to a worker. Blocks for up to a minute.

    Args:
        most_bytes: the maximum size of the response; a larger one is an error.

    Raises:
        NotReady: the worker did not respond, or the response is too large.
    """
    if (refusal := security.refusal(worker)) is not None:
        raise NotReady(refusal)
    try:
        with closing(_connection(worker, security)) as connection:
            connection.request("POST", path, body, {**headers, KEY_HEADER: security.key})
            response = connection.getresponse()
            answer = response.read(most_bytes + 1)
    except (OSError, HTTPException, ValueError) as error:
        raise NotReady(f"it cannot be reached at {worker.address}: {error or type(error).__name__}") from error
    if len(answer) > most_bytes:
        raise NotReady(f"its response has more than {most_bytes} bytes")
    return Response(response.status, response.headers, answer)


def _connection(worker: Worker, security: Security) -> HTTPConnection:
    host, port, is_encrypted = parse_address(worker.address or "")
    connection = HTTPConnection(host, port, timeout=_ANSWER_S)
    if is_encrypted:
        connection.connect()
        name = security.server_name(worker)
        connection.sock = security.context().wrap_socket(connection.sock, server_hostname=name)
    return connection


def map_workers(workers: Sequence[Worker], ask: Callable[[Worker], Result]) -> list[Result]:
    """Returns the result of `ask` for each worker, in the order of the workers. Calls it for several workers at the
    same time. Blocks.
    """
    with ThreadPoolExecutor(max(1, min(_AT_ONCE, len(workers))), "octet-ask") as threads:
        return list(threads.map(ask, workers))
