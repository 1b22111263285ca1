"""The process that fuzzes an importer: `python -m tests.fuzz.hunt FORMAT CORPUS FINDINGS SECONDS`.

Each finding is minimized and written to FINDINGS, once for each source line that raises it. Fuzzing then continues. If
the process crashes, libFuzzer writes the input to FINDINGS, and fuzzing ends.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

import atheris

# Only the importers are instrumented, because the coverage of other code would not help to find inputs.
with atheris.instrument_imports(include=["service.compiler.importers"]):
    from tests.fuzz.findings import Judge, minimized
    from tests.fuzz.mutations import MUTATORS, REDUCERS
    from tests.fuzz.seeds import SHAPES
    from tests.support.fuzz import limit_memory

_STUCK_S = 60  # limit for native code, which the judge's timer cannot interrupt


def main(file_format: str, corpus: Path, findings: Path, seconds: int) -> None:
    judge, found = Judge(file_format, SHAPES.get(file_format, {})), set[str]()
    largest_bytes = 0
    for path in corpus.iterdir():  # loads modules that are imported late, before memory is limited
        judge(path.read_bytes())
        largest_bytes = max(largest_bytes, path.stat().st_size)

    def one_input(data: bytes) -> None:
        what = judge(data)
        if what is None or what in found:
            return
        found.add(what)
        small = minimized(data, lambda candidate: judge(candidate) == what, REDUCERS[file_format])
        (findings / what.replace("/", ".").replace(" ", "-").replace(":", "-")).write_bytes(small)
        print(f"FOUND {what}: {len(small)} bytes", file=sys.stderr, flush=True)

    def mutator(data: bytes, max_size: int, seed: int) -> bytes:
        return MUTATORS[file_format](data, random.Random(seed), lambda part: _mutated(part, max_size))[:max_size]

    options = [f"-max_total_time={seconds}", f"-timeout={_STUCK_S}", f"-max_len={2 * largest_bytes}", "-len_control=0"]
    limit_memory()
    atheris.Setup(
        ["hunt", str(corpus), f"-artifact_prefix={findings}/", "-rss_limit_mb=0", "-report_slow_units=1000", *options],
        one_input,
        custom_mutator=mutator,
    )
    atheris.Fuzz()


def _mutated(data: bytes, max_size: int) -> bytes:
    result: bytes = atheris.Mutate(data, max(max_size, len(data)))
    return result


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4]))
