"""Attacks a server with hostile tokenizers, texts and pictures, while another client sends ordinary requests:

    python -m tests.fuzz.preprocess --seconds 3600 --seed 0
    python -m tests.fuzz.preprocess --only tokenizers --case 17 --seed 0    # one case again
    python -m tests.fuzz.preprocess --only folders                          # published folders, without a server

A finding is an unexpected status, a failed or late response to the other client, too much memory,
a traceback in the log, or a data plane that ends. The input of a finding is written to `fuzz-findings/preprocess`. The
exit status is 1 if there were findings.

The preprocessing process may end itself, because a thread of it cannot be stopped. The next one repeats the questions
of other clients, and its start is part of the time that they wait. On a busy machine, allow for it with `--patience`.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import httpx

from service.core.models.text import MAX_TOKENIZER_BYTES
from tests.conformance.tokenization.texts import text as random_text
from tests.fuzz.preprocess import folders, tokenizers
from tests.fuzz.preprocess.pictures import picture
from tests.fuzz.preprocess.target import TEXT, Target, target

_PARTS = ("tokenizers", "texts", "pictures", "folders")
_REFUSALS = (200, 400, 413, 415, 422, 429, 503, 504)
_MEMORY_BYTES = 4 << 30  # the address space of a text process is limited to 3.3 GB on two cores
_CASES_OF_SERVER = 200  # after so many cases a new server is started, because models stay loaded


class Findings:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.names: list[str] = []

    def add(self, part: str, case: int, what: str, data: bytes) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        self.names.append(f"{part}-{case}")
        (self._folder / self.names[-1]).write_bytes(data)
        print(f"FOUND {part} {case} ({len(data)} bytes): {what}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", choices=_PARTS, default=_PARTS)
    parser.add_argument("--case", type=int, help="run this case alone")
    parser.add_argument("--first", type=int, default=0, help="the first case")
    parser.add_argument("--patience", type=float, default=1.0, help="seconds that another client may wait")
    parser.add_argument("--findings", type=Path, default=Path("fuzz-findings/preprocess"))
    arguments = parser.parse_args()
    findings, ends_s = Findings(arguments.findings), time.monotonic() + arguments.seconds
    first = arguments.first if arguments.case is None else arguments.case
    cases = _numbers(first, ends_s) if arguments.case is None else iter([first])
    done = asyncio.run(_run(cases, arguments, findings))
    print(f"{done} cases with seed {arguments.seed}: {len(findings.names)} findings")
    return 1 if findings.names else 0


def _numbers(first: int, ends_s: float) -> Iterator[int]:
    while time.monotonic() < ends_s:
        yield first
        first += 1


async def _run(cases: Iterator[int], arguments: argparse.Namespace, findings: Findings) -> int:
    done = 0
    with tempfile.TemporaryDirectory() as scratch:
        if arguments.only == ["folders"]:
            return _run_folders(cases, arguments.seed, Path(scratch), findings)
        while (case := next(cases, None)) is not None:
            async with target(Path(scratch, "log")) as server:
                await server.attack_with_texts(TEXT, "the fox")  # starts the process
                watching = asyncio.create_task(server.watch())
                for _ in range(_CASES_OF_SERVER):
                    part = arguments.only[case % len(arguments.only)]
                    if part == "folders":
                        folders.check(random.Random(f"{arguments.seed}/{case}"), Path(scratch), findings.add, case)
                    else:
                        await _attack(server, part, case, arguments, findings)
                    done += 1
                    if (case := next(cases, None)) is None:
                        break
                watching.cancel()
                await asyncio.gather(watching, return_exceptions=True)
                print(
                    f"{done} cases, {len(findings.names)} findings; processes started: {server.plane.starts}, "
                    f"memory at most {server.plane.peak_bytes / 1e6:.0f} MB, other client at most "
                    f"{server.worst_s:.2f} s",
                    flush=True,
                )
            if case is None:
                break
    return done


def _run_folders(cases: Iterator[int], seed: int, scratch: Path, findings: Findings) -> int:
    done = 0
    for case in cases:
        folders.check(random.Random(f"{seed}/{case}"), scratch, findings.add, case)
        done += 1
    return done


async def _attack(server: Target, part: str, case: int, arguments: argparse.Namespace, findings: Findings) -> None:
    rng = random.Random(f"{arguments.seed}/{case}")
    before_s, server.worst_s = server.worst_s, 0.0
    statuses: list[int] = []
    wrong: list[str] = []
    data = b""
    try:
        match part:
            case "pictures":
                data = picture(rng)
                statuses.append(await server.attack_with_picture(data))
            case "texts":
                texts = [random_text(arguments.seed, 50 * case + index) for index in range(rng.choice((1, 1, 1, 20)))]
                data = "\n".join(texts).encode()
                statuses += [await server.attack_with_texts(TEXT, each) for each in texts]
            case "tokenizers":
                data = tokenizers.tokenizer(rng)
                if len(data) <= MAX_TOKENIZER_BYTES:
                    model = await server.upload(data)
                    statuses += [await server.attack_with_texts(model, tokenizers.text(rng)) for _ in range(2)]
    except httpx.HTTPError as error:
        wrong.append(f"a request was not answered: {error!r}")
    wrong += [f"status {each}" for each in statuses if each not in _REFUSALS]
    if server.worst_s > arguments.patience:
        wrong.append(f"another client waited {server.worst_s:.2f} s")
    wrong += [f"another client got {each}" for each in server.failures]
    server.failures.clear()
    if server.plane.peak_bytes > _MEMORY_BYTES:
        wrong.append(f"the process had {server.plane.peak_bytes / 1e6:.0f} MB")
        server.plane.peak_bytes = 0
    if "Traceback" in (log := server.new_log()):
        wrong.append(f"log: {log[-2000:]}")
    if server.plane.process is None or server.plane.process.poll() is not None:
        raise RuntimeError(f"the data plane ended in case {case} of {part}")
    server.worst_s = max(before_s, server.worst_s)
    for each in wrong:
        findings.add(part, case, each, data)


if __name__ == "__main__":
    sys.exit(main())
