"""An artifact whose code runs when it is loaded, in the data plane: what it can still do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from service.core.digest import canonical_json
from service.native import __file__ as native
from service.workers.data_plane.frames import frame
from tests.support.small_artifact import CONSTANTS, SIMPLE

_PLANE = Path(native).with_name("octet-plane")
# It tells what became of each attempt where only a parent reads it.
_HOSTILE = """
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <arpa/inet.h>
#include <unistd.h>
#include <pthread.h>

static void say(const char* what, long result) {
  fprintf(stderr, "%s %s\\n", what, result < 0 ? "refused" : "done");
}
static void* elsewhere(void* unused) {
  say("read in a thread", open("SECRET", O_RDONLY));
  return unused;
}
__attribute__((constructor)) static void mischief(void) {
  say("read", open("SECRET", O_RDONLY));
  say("write", open("PLACE/new", O_WRONLY | O_CREAT, 0600));
  say("write beside", open("STORE/new", O_WRONLY | O_CREAT, 0600));
  say("unlink", unlink("SECRET"));
  say("socket", socket(AF_INET, SOCK_STREAM, 0));
  say("unix socket", socket(AF_UNIX, SOCK_STREAM, 0));
  say("fork", fork());
  char* arguments[] = {"/bin/true", 0};
  say("exec", execve("/bin/true", arguments, 0));
  pthread_t thread;
  if (pthread_create(&thread, 0, elsewhere, 0) == 0) pthread_join(thread, 0);
}
int add(void* const* operands) { return 7; }
int twice(void* const* operands) { return 7; }
"""


@pytest.fixture
def said(tmp_path: Path) -> list[str]:
    """What the code said, one line for each attempt."""
    secret, place, store = tmp_path / "secret", tmp_path / "place", tmp_path / "store"
    secret.write_text("it")
    place.mkdir()
    store.mkdir()
    source, library = tmp_path / "hostile.c", store / "hostile.so"
    text = _HOSTILE.replace("SECRET", str(secret)).replace("PLACE", str(place)).replace("STORE", str(store))
    source.write_text(text)
    subprocess.run([sys.executable, "-m", "ziglang", "cc", "-shared", "-fPIC", "-w", source, "-o", library], check=True)
    constants = store / "constants"
    constants.write_bytes(CONSTANTS.tobytes())
    part = {
        "batch": 1,
        "artifact": "",
        "config": canonical_json(SIMPLE).decode(),
        "library": str(library),
        "constants": str(constants),
    }
    orders = os.memfd_create("orders")
    os.write(orders, frame({"type": "load", "key": 1, "model": "m", "version": "1", "parts": [part]}))
    os.lseek(orders, 0, os.SEEK_SET)
    process = subprocess.Popen(
        [_PLANE, "--orders", str(orders), "--reads", store], pass_fds=[orders], stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    lines = [process.stderr.readline().strip() for _ in range(9)]
    process.terminate()
    process.communicate()
    return lines


def test_code_of_an_artifact_reaches_no_file_no_program_and_no_network(said: list[str]) -> None:
    attempts = ("read", "write", "write beside", "unlink", "socket", "unix socket", "fork", "exec", "read in a thread")
    assert said == [f"{attempt} refused" for attempt in attempts]
