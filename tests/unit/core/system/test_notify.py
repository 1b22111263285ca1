"""Tests of messages to systemd, with a socket like systemd's."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from service.core.system.notify import ServiceManager


@pytest.fixture(params=["a file", "an abstract name"])
def named(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[socket.socket, str]]:
    """A datagram socket, and its name in the form that systemd passes it."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        if request.param == "a file":
            listener.bind(str(tmp_path / "notify"))
            yield listener, str(tmp_path / "notify")
        else:
            listener.bind("")  # the kernel chooses a name
            yield listener, "@" + listener.getsockname()[1:].decode()


def test_systemd_receives_each_state(named: tuple[socket.socket, str]) -> None:
    listener, name = named
    systemd = ServiceManager({"NOTIFY_SOCKET": name})
    systemd.ready()
    systemd.alive()
    systemd.stopping()
    assert [listener.recv(100) for _ in range(3)] == [b"READY=1", b"WATCHDOG=1", b"STOPPING=1"]


def test_a_replacing_program_reports_on_the_connected_socket(named: tuple[socket.socket, str]) -> None:
    listener, name = named
    connected = ServiceManager({"NOTIFY_SOCKET": name}).connected()
    assert connected is not None
    with connected:
        connected.send(b"WATCHDOG=1")
    assert listener.recv(100) == b"WATCHDOG=1"
    assert ServiceManager({}).connected() is None
    assert ServiceManager({"NOTIFY_SOCKET": "@nobody-at-all"}).connected() is None


def test_without_systemd_nothing_is_sent(tmp_path: Path) -> None:
    for name in ("", "relative", str(tmp_path / "nobody"), "@nobody-at-all"):
        ServiceManager({"NOTIFY_SOCKET": name}).ready()


@pytest.mark.parametrize(
    ("environment", "period_s"),
    [
        ({"WATCHDOG_USEC": "3000000"}, 1.5),
        ({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": str(os.getpid())}, 1.5),
        ({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({}, None),
    ],
)
def test_the_watchdog_interval_is_half_of_systemds(environment: dict[str, str], period_s: float | None) -> None:
    assert ServiceManager({"NOTIFY_SOCKET": "@x", **environment}).watchdog_s == period_s
    assert ServiceManager(environment).watchdog_s is None
