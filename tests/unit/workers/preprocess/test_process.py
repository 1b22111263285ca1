"""Tests of the preprocessing process: its lock-down, and its end."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from service.workers.preprocess.process import answer
from tests.support.waiting import GIVE_UP_S

# The code that runs in place of the decoder. It prints the result of each attempt.
_HOSTILE = """
import ctypes, errno, json, os, resource, socket, sys, threading
from service.workers.preprocess import process
from service.workers.supervised import Ready

address, secret, parent = sys.argv[1], sys.argv[2], os.getppid()
libc = ctypes.CDLL(None, use_errno=True)
REFUSALS = errno.EPERM, errno.EACCES, errno.ENOSYS

def refused(act):
    try:
        return act() == -1 and ctypes.get_errno() in REFUSALS
    except OSError as error:
        return error.errno in REFUSALS
    except ValueError:  # of setrlimit
        return True

def write(path):
    with open(path, "w") as file:
        file.write("x")

async def attempts(connection, beat):
    in_thread = []
    thread = threading.Thread(target=lambda: in_thread.append(refused(lambda: open(secret).close())))
    thread.start()
    thread.join()
    found = {
        "read": refused(lambda: open(secret).close()),
        "read in a thread": in_thread[0],
        "list": refused(lambda: os.listdir(os.path.dirname(secret))),
        "write": refused(lambda: write(secret)),
        "create": refused(lambda: write(secret + ".new")),
        "truncate": refused(lambda: os.close(os.open(secret, os.O_RDONLY | os.O_TRUNC))),
        "socket": refused(lambda: socket.socket(socket.AF_INET).close()),
        "unix socket": refused(lambda: socket.socket(socket.AF_UNIX).close()),
        "socket pair": refused(lambda: socket.socketpair()[0].close()),
        "connect": refused(lambda: connection.connect(address)),
        "send to an address": refused(lambda: connection.sendto(b"x", address)),
        "pass a descriptor": refused(lambda: socket.send_fds(connection, [b"x"], [0])),
        "exec": refused(lambda: os.execv("/bin/true", ["true"])),
        "fork": refused(lambda: os.waitpid(os.fork(), 0)),
        "signal": refused(lambda: os.kill(parent, 0)),
        "trace": refused(lambda: libc.ptrace(16, parent, 0, 0)),
        "raise a limit": refused(lambda: resource.setrlimit(resource.RLIMIT_AS, (-1, -1))),
        "shared memory": refused(lambda: libc.memfd_create(b"x", 0)),
    }
    print(json.dumps(found), flush=True)

process.answer = attempts
process.run(address, Ready(int(sys.argv[3])))
"""


def test_the_process_reaches_no_file_no_network_and_no_other_process(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("it")
    with socket.socket(socket.AF_UNIX) as listener:
        address = str(tmp_path / "link")
        listener.bind(address)
        listener.listen()
        read, write = os.pipe()
        arguments = [address, str(secret), str(write)]
        result = subprocess.run(
            [sys.executable, "-c", _HOSTILE, *arguments],
            capture_output=True,
            text=True,
            pass_fds=[write],
            timeout=GIVE_UP_S,
        )
        os.close(write)
        with os.fdopen(read) as pipe:
            assert json.loads(pipe.readline()) == {"ready": True}
    assert result.returncode == 0, result.stderr
    attempts = json.loads(result.stdout)
    assert [name for name, is_refused in attempts.items() if not is_refused] == []
    assert secret.read_text() == "it"


@pytest.mark.anyio
async def test_it_ends_when_the_data_plane_ends() -> None:
    local, remote = socket.socketpair()
    local.setblocking(False)
    beats: list[None] = []
    answering = asyncio.create_task(answer(local, lambda: beats.append(None)))
    await asyncio.sleep(0)
    remote.close()
    await asyncio.wait_for(answering, GIVE_UP_S)
    assert beats
    assert local.fileno() < 0


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
