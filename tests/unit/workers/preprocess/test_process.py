"""Tests of the preprocessing process: its lock-down, and its end."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import struct
import subprocess
import sys
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from service.core.digest import digest_of
from service.workers.data_plane.frames import Frames, frame
from service.workers.preprocess.process import answer
from tests.support.tokenizers import wordpiece
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

async def attempts(connection, beat=None, text_processes=()):
    if beat is None:  # a text process
        return
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
            assert {"ready": True} in [json.loads(line) for line in pipe]
    assert result.returncode == 0, result.stderr
    attempts = json.loads(result.stdout)
    assert [name for name, is_refused in attempts.items() if not is_refused] == []
    assert secret.read_text() == "it"


_RUN = """
import sys
from service.workers.preprocess.process import run
from service.workers.supervised import Ready
run(sys.argv[1], Ready(int(sys.argv[2])))
"""


def test_the_locked_process_decodes_pictures_and_tokenizes_texts(tmp_path: Path) -> None:
    """The libraries need no file and no system call that the process gave up."""
    data = wordpiece().to_str().encode()
    (tmp_path / "tokenizer.json").write_bytes(data)
    picture = BytesIO()
    Image.new("RGB", (8, 6), "white").save(picture, "WEBP")
    image = {"name": "image", "datatype": "UINT8", "shape": [1, 2, 2, 3]}
    common = {"type": "question", "peer": "127.0.0.1"}
    questions = [
        ({**common, "question": 1, "kind": "picture", "pixels": 48, "input": image}, picture.getvalue()),
        (
            {
                **{
                    **common,
                    "question": 2,
                    "kind": "text",
                    "passes": True,
                    "batches": 1,
                    "pairs": False,
                    "pads": False,
                },
                "inputs": [{"name": "input_ids", "datatype": "INT32", "shapes": [[1, 4]]}],
                "text": {"tokenizer": str(digest_of(data)), "tokenizer_bytes": len(data)},
            },
            b"\3\0\0\0fox",
        ),
    ]
    with socket.socket(socket.AF_UNIX) as listener:
        address = str(tmp_path / "link")
        listener.bind(address)
        listener.listen()
        listener.settimeout(GIVE_UP_S)
        process = subprocess.Popen([sys.executable, "-c", _RUN, address, "1"], stdout=subprocess.DEVNULL)
        try:
            connection, _ = listener.accept()
            with connection, (tmp_path / "tokenizer.json").open("rb") as file:
                connection.sendall(frame(*questions[0]))
                socket.send_fds(connection, [frame(*questions[1])], [file.fileno()])
                frames, found = Frames(), list[tuple[dict[str, Any], bytes]]()
                connection.settimeout(GIVE_UP_S)
                while len(found) < 2:
                    found += frames.feed(connection.recv(1 << 16))
            assert process.wait(GIVE_UP_S) == 0
        finally:
            process.kill()
            process.wait()
    answers = {members["question"]: (members, rest) for members, rest in found}
    assert answers[1][1] == b"\xff" * 12
    assert answers[2][0]["tokens"] == [3]
    assert answers[2][1] == struct.pack("<4i", 2, 7, 3, 0)


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
