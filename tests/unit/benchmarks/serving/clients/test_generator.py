"""Runs both load generators against a slow server in this process."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from benchmarks.harness.wire import request_bytes
from benchmarks.serving.clients import generator
from benchmarks.serving.clients.flood import ANYWHERE, Flood
from benchmarks.serving.clients.load import Load, Outcome, Phase
from tests.support.waiting import GIVE_UP_S

SERVICE_S = 0.02

Run = Callable[[Load], Outcome]


@pytest.fixture(
    scope="module", params=[0, 1, pytest.param(3, marks=pytest.mark.slow)], ids=["python", "c", "three processes of c"]
)
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Run:
    if request.param == 0:
        return generator.run
    return Flood([ANYWHERE] * request.param, tmp_path_factory.mktemp("flood")).run


class OneAtATime:
    """A server that handles one request after the other and takes `SERVICE_S` for each.

    Args:
        answers: the bodies of the responses, used in turn.
        keep: False to close each connection after its first response.
        together: the number of connections that must have sent a request before the first response.
    """

    def __init__(self, *answers: bytes, status: str = "200 OK", keep: bool = True, together: int = 1) -> None:
        self._answers, self._status, self._keep = answers, status, keep
        self.count, self._core = 0, threading.Lock()
        self._together = threading.Barrier(together)
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port: int = self.listener.getsockname()[1]

    def accept(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            is_first = True
            while connection.recv(1 << 16):
                if is_first:
                    self._together.wait(GIVE_UP_S)
                    is_first = False
                with self._core:
                    time.sleep(SERVICE_S)
                    body = self._answers[self.count % len(self._answers)]
                    self.count += 1
                lines = [f"HTTP/1.1 {self._status}", f"Content-Length: {len(body)}"]
                lines += [] if self._keep else ["Connection: close"]
                connection.sendall("\r\n".join([*lines, "", ""]).encode() + body)
                if not self._keep:
                    return


@contextmanager
def serving(server: OneAtATime, folder: Path) -> Iterator[dict[str, str | int]]:
    """Runs the server, and yields the arguments of a `Load` for it."""
    thread = threading.Thread(target=server.accept, daemon=True)
    thread.start()
    request, expected = folder / "request", folder / "expected"
    request.write_bytes(request_bytes("127.0.0.1", server.port, "/", {}, b"body"))
    expected.write_bytes(b"right")
    yield {"host": "127.0.0.1", "port": server.port, "request": str(request), "expected": str(expected)}
    server.listener.shutdown(socket.SHUT_RDWR)  # ends a pending accept, which closing alone does not
    server.listener.close()


@pytest.mark.parametrize("polls", [True, False])
def test_a_closed_loop_reaches_the_rate_of_the_server(run: Run, tmp_path: Path, polls: bool) -> None:
    clients = 3
    server = OneAtATime(b"right", together=clients)
    with serving(server, tmp_path) as at:
        outcome = run(Load(**at, connections=clients, seconds=1.0, polls=polls, warm_up_s=0.0))  # type: ignore[arg-type]
    assert outcome.wrong == 0
    assert server.count - clients <= len(outcome.good) <= server.count  # without the requests in flight at the end
    assert outcome.elapsed_s <= 1.0
    assert outcome.per_s <= 1.05 / SERVICE_S
    assert outcome.latencies_ms()[0] >= 1e3 * SERVICE_S


@pytest.mark.parametrize("polls", [True, False])
def test_waiting_in_an_open_loop_counts_as_latency(run: Run, tmp_path: Path, polls: bool) -> None:
    """Sends twice as many requests as the server can handle. The n-th request waits for n / 2 service times."""
    with serving(OneAtATime(b"right"), tmp_path) as at:
        outcome = run(Load(**at, phases=[Phase(2 / SERVICE_S, 0.4)], polls=polls))  # type: ignore[arg-type]
    assert len(outcome.good) == 40
    last = max(outcome.answers, key=lambda answer: answer.due_s)
    assert last.due_s == pytest.approx(39 * SERVICE_S / 2, abs=1e-6)
    assert max(answer.latency_s for answer in outcome.answers) > 15 * SERVICE_S


def test_requests_that_the_generator_is_late_with_are_counted_and_not_sent(run: Run, tmp_path: Path) -> None:
    with serving(OneAtATime(b"right"), tmp_path) as at:
        pass  # The server has ended: connections are refused, and no request waits for another.
    rate = 200_000  # All are due at once, which is more than a client can send within `latest_s`.
    outcome = run(Load(**at, phases=[Phase(1e9, rate / 1e9)], latest_s=0.2))  # type: ignore[arg-type]
    assert outcome.unsent > 0
    assert len(outcome.answers) + outcome.unsent == rate


def test_the_generator_waits_for_responses_to_late_requests(run: Run, tmp_path: Path) -> None:
    """A generator that is late sends the last requests after their time, and still waits for their responses."""
    with serving(OneAtATime(b"right"), tmp_path) as at:
        outcome = run(Load(**at, phases=[Phase(1e6, 1e-4)], patience_s=GIVE_UP_S))  # type: ignore[arg-type]
    assert outcome.statuses == {"200": 100}


def test_wrong_responses_are_counted(run: Run, tmp_path: Path) -> None:
    with serving(OneAtATime(b"right", b"wrong"), tmp_path) as at:
        outcome = run(Load(**at, phases=[Phase(20, 0.2)]))  # type: ignore[arg-type]
    assert (len(outcome.good), outcome.wrong) == (2, 2)


def test_a_refusal_is_not_a_wrong_response_and_ends_the_connection(run: Run, tmp_path: Path) -> None:
    with serving(OneAtATime(b"full", status="429 Too Many Requests", keep=False), tmp_path) as at:
        outcome = run(Load(**at, phases=[Phase(20, 0.2)]))  # type: ignore[arg-type]
    assert (outcome.statuses, outcome.wrong, outcome.good) == ({"429": 4}, 0, [])


def test_requests_to_a_missing_server_are_lost(run: Run, tmp_path: Path) -> None:
    with serving(OneAtATime(b"right"), tmp_path) as at:
        pass
    assert run(Load(**at, phases=[Phase(20, 0.1)])).statuses == {"lost": 2}  # type: ignore[arg-type]
