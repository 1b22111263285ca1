"""Tests of the real, locked-in process with hostile tokenizers: other clients' pictures and texts are answered soon."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import string
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tokenizers import Tokenizer, models, pre_tokenizers

from service.core.digest import digest_of
from service.workers.data_plane.frames import Frames, frame
from tests.support.serving import children_of
from tests.support.sounds import wav
from tests.support.tokenizers import wordpiece
from tests.support.waiting import GIVE_UP_S, eventually

HARD = b"a" * 3000 + b"e"
_RUN = """
import os, sys
from service.workers.preprocess.process import run
from service.workers.supervised import Ready
run(sys.argv[1], Ready(int(sys.argv[2])))
os._exit(0)  # as the supervisor's child does
"""


class Process:
    """The process, and this test in place of its data plane."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(folder / "link"))
        self._listener.listen()
        self._arguments = [sys.executable, "-c", _RUN, str(folder / "link"), "1"]
        self.start()

    def start(self) -> None:
        self.log = self._folder / "log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(self._arguments, stdout=subprocess.DEVNULL, stderr=log)
        self._listener.settimeout(GIVE_UP_S)
        self._accept()

    def accept_next(self) -> None:
        """Waits for the process that continues the work of the last one."""
        self._connection.close()
        self._accept()

    def _accept(self) -> None:
        self._connection, _ = self._listener.accept()
        self._connection.settimeout(GIVE_UP_S)
        self._frames, self._waiting = Frames(), list[dict[str, Any]]()

    def close(self) -> None:
        self._connection.close()
        self._listener.close()
        self.process.kill()
        self.process.wait()

    def ask_picture(self, number: int) -> None:
        image = {"name": "image", "datatype": "UINT8", "shape": [1, 2, 2, 3]}
        file = BytesIO()
        Image.new("RGB", (8, 6), "white").save(file, "PNG")
        question = {"type": "question", "peer": "192.0.2.2", "question": number, "kind": "picture", "pixels": 48}
        self._connection.sendall(frame({**question, "input": image}, file.getvalue()))

    def ask_text(self, number: int, tokenizer: bytes, text: bytes, peer: str = "192.0.2.1") -> None:
        path = self._folder / f"{number}.json"
        path.write_bytes(tokenizer)
        question = {
            **{"type": "question", "peer": peer, "question": number, "kind": "text", "passes": True, "batches": 1},
            "pads": False,
            "inputs": [{"name": "input_ids", "datatype": "INT32", "shapes": [[1, 4]]}],
            "text": {"tokenizer": str(digest_of(tokenizer)), "tokenizer_bytes": len(tokenizer)},
        }
        with path.open("rb") as file:
            data = frame(question, struct.pack("<I", len(text)) + text)
            sent = socket.send_fds(self._connection, [data], [file.fileno()])
            self._connection.sendall(data[sent:])

    def send(self, question: dict[str, Any], data: bytes) -> None:
        self._connection.sendall(frame(question, data))

    def worker(self) -> int:
        """Returns the process that answers. It is a child of the one that this test has started."""
        (pid,) = children_of(self.process.pid)
        return pid

    def withdraw(self, number: int) -> None:
        self._connection.sendall(frame({"type": "withdraw", "question": number}))

    def next(self) -> dict[str, Any]:
        while not self._waiting:
            self._waiting += [members for members, _ in self._frames.feed(self._connection.recv(1 << 16))]
        return self._waiting.pop(0)


def processor_ticks(pid: int) -> int:
    members = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(members[11]) + int(members[12])


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Process]:
    process = Process(tmp_path)
    try:
        process.ask_picture(1)
        assert process.next()["question"] == 1  # it has started
        yield process
    finally:
        process.close()


def test_the_locked_process_reads_sounds_and_tables(process: Process) -> None:
    """The libraries need no file and no system call that the process gave up."""
    pytest.importorskip("soundfile", reason="soundfile is not installed")
    sound = wav(np.full(4410, 0.5), 44_100)
    common = {"type": "question", "peer": "192.0.2.2"}
    spec: dict[str, Any] = {"name": "x", "datatype": "FP32", "shapes": [[1, 1600]]}
    asked = {**common, "question": 2, "kind": "sound", "inputs": [spec], "preprocessing": {"sampling_rate": 16_000}}
    process.send(asked, sound)
    answer = process.next()
    assert (answer["shape"], answer["sound_samples"], answer["truncated"]) == ([1, 1600], 1600, 0)
    spec = {"name": "x", "datatype": "INT8", "shapes": [[1, 2]], "quantization": {"scale": 0.5, "zero_point": 1}}
    process.send({**common, "question": 3, "kind": "table", "batches": 4, "inputs": [spec]}, b"1,2\n3,4\n")
    answer = process.next()
    assert (answer["shapes"], answer["rows"]) == ([[2, 2]], 2)


def endless() -> bytes:
    """Returns a tokenizer whose regular expression takes minutes for `HARD`. Each match stays below the limit of the
    package for one match.
    """
    tokenizer = json.loads(wordpiece().to_str())
    tokenizer["normalizer"] = {"type": "Replace", "pattern": {"Regex": "a*?a*?(?:[^ae]|e.)"}, "content": ""}
    return json.dumps(tokenizer).encode()


def test_an_endless_text_fails_alone(process: Process) -> None:
    plain = wordpiece().to_str().encode()
    process.ask_text(2, endless(), HARD)
    process.ask_picture(3)
    process.ask_text(4, plain, b"fox", "192.0.2.2")
    began_s = time.monotonic()
    answers = {members["question"]: members for members in (process.next(), process.next())}
    assert set(answers) == {3, 4}
    assert "problem" not in answers[3]
    assert answers[4]["tokens"] == [3]
    failed = process.next()
    assert failed["question"] == 2
    assert "takes too long" in failed["problem"]["detail"]
    assert failed["problem"]["is_endless"] is True
    assert process.next() == {"type": "leaving", "suspects": []}
    process.accept_next()
    process.ask_text(5, plain, b"fox", "192.0.2.2")
    assert process.next()["tokens"] == [3]
    assert time.monotonic() - began_s < GIVE_UP_S


def test_a_panic_of_the_tokenizers_is_at_most_a_line_of_the_log(process: Process) -> None:
    tokenizer = json.loads(wordpiece().to_str())
    tokenizer["normalizer"] = {"type": "Precompiled", "precompiled_charsmap": "AAAA"}
    for number in range(2, 7):
        process.ask_text(number, json.dumps(tokenizer).encode() + b" " * number, b"fox")
        assert "Cannot parse precompiled_charsmap" in process.next()["problem"]["detail"]
    lines = process.log.read_text().splitlines()
    assert 1 <= len(lines) <= 5
    assert all(line.startswith("the package tokenizers panicked: Precompiled: Error") for line in lines)


def test_an_endless_text_is_reported_after_its_client_has_left(process: Process) -> None:
    process.ask_text(2, endless(), HARD)
    time.sleep(0.1)
    process.withdraw(2)
    failed = process.next()
    assert (failed["question"], failed["problem"]["is_endless"]) == (2, True)
    assert process.next() == {"type": "leaving", "suspects": []}


def large_tokenizer(words: int) -> bytes:
    choice = random.Random(0)
    names = ("".join(choice.choices(string.ascii_lowercase, k=6)) + str(index) for index in range(words))
    vocabulary = [("<unk>", 0.0), *((name, -1.0) for name in names)]
    tokenizer = Tokenizer(models.Unigram(vocabulary, 0, False))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    return bytes(tokenizer.to_str(), "utf-8")


@pytest.mark.slow
def test_loading_a_large_tokenizer_delays_no_picture_and_no_text(process: Process) -> None:
    plain = wordpiece().to_str().encode()
    process.ask_text(2, plain, b"fox")
    assert process.next()["tokens"] == [3]
    process.ask_text(3, large_tokenizer(200_000), b"fox")
    slowest_s = 0.0
    for number in range(10, 20):
        time.sleep(0.1)
        began_s = time.monotonic()
        process.ask_picture(number)
        process.ask_text(number + 100, plain, b"fox", "192.0.2.2")
        found = {process.next()["question"], process.next()["question"]}
        slowest_s = max(slowest_s, time.monotonic() - began_s)
        if 3 in found:
            break
        assert found == {number, number + 100}
    assert slowest_s < 1


def test_a_text_process_that_dies_is_a_suspect(process: Process) -> None:
    process.ask_text(2, endless(), HARD)
    busy = 0
    while not busy:  # the other one has nothing to do
        busy = next((child for child in children_of(process.worker()) if processor_ticks(child) > 10), 0)
    os.kill(busy, signal.SIGKILL)
    assert process.next() == {"type": "leaving", "suspects": [2]}


def test_a_text_that_waits_is_no_suspect(process: Process) -> None:
    process.ask_text(2, endless(), b"fox")
    assert process.next()["question"] == 2  # the tokenizer is loaded
    before = {child: processor_ticks(child) for child in children_of(process.worker())}
    for number in (3, 4):  # the second one of a client waits for room
        process.ask_text(number, endless(), b" " * 1_000_000 + HARD)
    busy = 0
    while not busy:
        busy = next((child for child, ticks in before.items() if processor_ticks(child) > ticks + 20), 0)
    os.kill(busy, signal.SIGKILL)
    assert process.next() == {"type": "leaving", "suspects": [3]}


def test_a_process_that_dies_is_replaced_until_too_many_die(process: Process) -> None:
    for _ in range(5):
        os.kill(process.worker(), signal.SIGKILL)
        process.accept_next()
    os.kill(process.worker(), signal.SIGKILL)
    assert process.process.wait(GIVE_UP_S) == 1


def test_the_process_ends_with_its_parent(process: Process) -> None:
    worker = process.worker()
    os.kill(process.process.pid, signal.SIGKILL)
    eventually(lambda: not Path(f"/proc/{worker}").exists())


def test_a_text_waits_for_no_larger_text_of_another_client(process: Process) -> None:
    plain = wordpiece().to_str().encode()
    process.ask_text(2, plain, b"fox")
    process.next()
    for number in (3, 4):
        process.ask_text(number, plain, b"fox." * (1 << 18), "192.0.2.1")
    process.ask_text(5, plain, b"fox." * (1 << 14), "192.0.2.2")
    process.ask_text(6, plain, b"fox.", "192.0.2.3")
    assert {process.next()["question"], process.next()["question"]} == {5, 6}


def test_clients_take_turns_between_the_texts_of_a_question(process: Process) -> None:
    plain = wordpiece().to_str().encode()
    process.ask_text(2, plain, b"fox")
    process.next()
    texts = b"".join(struct.pack("<I", 1 << 18) + b"fox." * (1 << 16) for _ in range(20))
    process.send(many(plain, 3), texts)
    process.ask_text(4, plain, b"fox." * (1 << 16), "192.0.2.2")
    assert process.next()["question"] == 4
    assert process.next()["tokens"] == [4] * 20


def many(tokenizer: bytes, number: int) -> dict[str, Any]:
    """Returns a question about up to 64 texts, whose tokenizer is loaded."""
    question = {"type": "question", "peer": "192.0.2.1", "question": number, "kind": "text", "batches": 64}
    question |= {"pads": False, "inputs": [{"name": "input_ids", "datatype": "INT32", "shapes": [[1, 4]]}]}
    return question | {"text": {"tokenizer": str(digest_of(tokenizer)), "tokenizer_bytes": len(tokenizer)}}


def test_texts_that_are_withdrawn_are_not_tokenized_to_the_end(process: Process) -> None:
    plain = wordpiece().to_str().encode()
    texts = b"".join(struct.pack("<I", 1 << 18) + b"fox " * (1 << 16) for _ in range(40))
    process.ask_text(2, plain, (b"fox " * (1 << 16)), "192.0.2.1")
    process.next()
    number = 3
    process.send(many(plain, number), texts)
    time.sleep(0.5)
    process.withdraw(number)
    began_s = time.monotonic()
    assert process.next()["problem"]["code"] == "deadline_passed"
    assert time.monotonic() - began_s < 2
