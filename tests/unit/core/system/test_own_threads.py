"""Tests of counting a process's own threads."""

from __future__ import annotations

import subprocess
import sys

_COUNTED = "from service.core.system.own_threads import own_threads; import threading; before = own_threads(); "
_ONE_MORE = "threading.Thread(target=threading.Event().wait, daemon=True).start(); "
_NATIVE = "import _thread, time; _thread.start_new_thread(time.sleep, (60,)); "  # unknown to `threading`


def _output_of(program: str) -> str:
    return subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout.strip()


def test_a_process_has_its_main_thread_and_those_that_it_starts() -> None:
    assert _output_of(f"{_COUNTED}{_ONE_MORE}print(before, own_threads())") == "1 2"


def test_earlier_native_threads_belong_to_an_emulator() -> None:
    """Native threads that exist before the import are assumed to be threads of an emulator, such as qemu."""
    assert _output_of(f"{_NATIVE}{_COUNTED}{_ONE_MORE}print(before, own_threads())") == "1 2"


def test_earlier_python_threads_are_counted() -> None:
    """Python threads are counted as own threads even if the module is imported after they started."""
    assert _output_of(f"import threading; {_ONE_MORE}{_COUNTED}print(before)") == "2"
