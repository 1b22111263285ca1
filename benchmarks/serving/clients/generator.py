"""The process that generates the load, pinned to its own core:

    python -m benchmarks.serving.clients.generator CORE

Reads a load as a line of JSON, and writes a line: `{"answers": [[due_s, latency_s, status, right], …], "elapsed_s"}`.
It is one thread around epoll, which polls unless it is configured to sleep. Its work on a body takes the same time for
slow and fast servers.
"""

from __future__ import annotations

import gc
import json
import os
import select
import sys
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness.machine import end_with_parent
from benchmarks.harness.wire import LOST, Exchange, Response
from benchmarks.serving.clients.load import OK, Answer, Load, Outcome, Phase

_MAX_CONNECTIONS = 4096
_now = time.monotonic


def main() -> None:
    end_with_parent()
    os.sched_setaffinity(0, {int(sys.argv[1])})
    for line in sys.stdin:
        fields = json.loads(line)
        load = Load(**{**fields, "phases": [Phase(**phase) for phase in fields["phases"]]})
        try:
            outcome = run(load)
            rows = [[it.due_s, it.latency_s, it.status, it.right] for it in outcome.answers]
            print(json.dumps({"answers": rows, "elapsed_s": outcome.elapsed_s}), flush=True)
        except (OSError, ValueError) as error:
            print(json.dumps({"error": f"{type(error).__name__}: {error}"}), flush=True)


def run(load: Load) -> Outcome:
    """Runs a load. Raises OSError if the server cannot be reached, ValueError if its responses cannot be parsed."""
    gc.disable()  # a pause of the generator would look like one of the server
    try:
        return _Open(load).run() if load.phases else _Closed(load).run()
    finally:
        gc.enable()


@dataclass
class _Busy:
    exchange: Exchange
    due_s: float


class _Loop:
    """Connections under epoll. Times are those of `time.monotonic`, until a response is recorded."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._request = Path(load.request).read_bytes()
        self._expected = Path(load.expected).read_bytes() if load.expected else None
        self._epoll = select.epoll()
        self._idle: list[Exchange] = []
        self._busy: dict[int, _Busy] = {}
        self._begun_s = _now()
        self.answers: list[Answer] = []

    def _events(self, until_s: float) -> list[tuple[int, int]]:
        """Returns the next events on the connections; empty if none occur before `until_s`."""
        if not self._load.polls:
            return self._epoll.poll(max(0.0, until_s - _now()))
        while not (events := self._epoll.poll(0)) and _now() < until_s:
            pass
        return events

    def _ask(self, due_s: float) -> None:
        exchange = self._idle.pop() if self._idle else self._connect()
        exchange.begin(self._request)
        self._busy[exchange.socket.fileno()] = _Busy(exchange, due_s)
        if exchange.is_sending:
            self._epoll.modify(exchange.socket, select.EPOLLIN | select.EPOLLOUT)

    def _connect(self) -> Exchange:
        exchange = Exchange(self._load.host, self._load.port)
        self._epoll.register(exchange.socket, select.EPOLLIN)
        return exchange

    def _progress(self, fd: int, events: int) -> Answer | None:
        """Returns the result of the connection's request, once it is over."""
        busy = self._busy.get(fd)
        if busy is None:
            self._forget_idle(fd)
            return None
        if events & select.EPOLLOUT:
            busy.exchange.send()
            if not busy.exchange.is_sending:
                self._epoll.modify(fd, select.EPOLLIN)
        if not events & ~select.EPOLLOUT:
            return None
        response = busy.exchange.receive()
        if response is None:
            return None
        answer = self._answer(busy, response)
        del self._busy[fd]
        if response.keeps:
            self._idle.append(busy.exchange)
        else:
            self._drop(busy.exchange)
        return answer

    def _forget_idle(self, fd: int) -> None:
        """Removes an idle connection that the server has closed."""
        for exchange in [it for it in self._idle if it.socket.fileno() == fd]:
            self._idle.remove(exchange)
            self._drop(exchange)

    def _drop(self, exchange: Exchange) -> None:
        self._epoll.unregister(exchange.socket)
        exchange.close()

    def _answer(self, busy: _Busy, response: Response) -> Answer:
        right = response.status != OK or self._expected is None or response.body == self._expected
        return Answer(busy.due_s - self._begun_s, _now() - busy.due_s, response.status, right)

    def _give_up(self) -> None:
        """Records the requests that are still under way as lost."""
        for busy in self._busy.values():
            self.answers.append(Answer(busy.due_s - self._begun_s, _now() - busy.due_s, LOST, True))
            busy.exchange.close()
        for exchange in self._idle:
            exchange.close()
        self._epoll.close()


class _Closed(_Loop):
    def run(self) -> Outcome:
        for _ in range(self._load.connections):
            self._ask(_now())
        counts_from = self._begun_s + self._load.warm_up_s
        ends = counts_from + self._load.seconds
        last = counts_from
        while self._busy:
            ready = self._events(_now() + self._load.patience_s)
            if not ready:
                break
            for fd, events in ready:
                answer = self._progress(fd, events)
                if answer is None:
                    continue
                now = _now()
                if counts_from <= now <= ends:
                    self.answers.append(answer)
                    last = now
                if now < ends:
                    self._ask(now)
        if not self.answers or self._busy:
            last = ends
        self._give_up()
        return Outcome(self.answers, last - counts_from)


class _Open(_Loop):
    def run(self) -> Outcome:
        self._begun_s = _now() + 1e-3
        ahead = deque(self._begun_s + at for at in self._load.arrivals_s())
        give_up_s = ahead[-1] + self._load.patience_s
        unsent = 0
        while (ahead or self._busy) and _now() < give_up_s:
            for fd, events in self._events(ahead[0] if ahead else give_up_s):
                if answer := self._progress(fd, events):
                    self.answers.append(answer)
            while ahead and ahead[0] <= _now() and len(self._busy) < _MAX_CONNECTIONS:
                due = ahead.popleft()
                if _now() > due + self._load.latest_s:
                    unsent += 1
                else:
                    self._ask(due)
        self._give_up()
        return Outcome(self.answers, _now() - self._begun_s, unsent)


if __name__ == "__main__":
    main()
