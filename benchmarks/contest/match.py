"""Measures all contestants on one model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from benchmarks.contest.contestants import PEAK, Contestant, contestants_for
from benchmarks.contest.figures import PEAKS, Results
from benchmarks.contest.records import Entry, Model, Record, Slice
from benchmarks.harness.artifacts import NotCompiled, artifact
from benchmarks.harness.contestant import ContestantProcess
from benchmarks.harness.frameworks import Job, dimensions
from benchmarks.harness.home import OWN_ENVIRONMENT, Home
from benchmarks.harness.machine import cores_for
from benchmarks.harness.records import write
from benchmarks.harness.rounds import Key, ProcessSpec, Rules, play
from benchmarks.models.catalog import Row
from benchmarks.models.tflite_file import macs
from benchmarks.peak.instructions import Instruction

_OPEN = ("onnx", "onnx_fp32", "mxnet")  # the formats of files that leave the shape of the input open
_PEAKS = Row(PEAKS, "Peak of each instruction", {})


@dataclass
class Contest:
    """The settings that all matches of a run share, and the records so far."""

    home: Home
    rules: Rules
    threads: Sequence[int]
    output: TextIO
    log: Path
    results: Results

    def record(self, record: Record) -> None:
        self.results.add(record)
        write(self.output, record)

    def peaks(self, instructions: Iterable[Instruction]) -> None:
        """Measures every instruction's peak, with each number of threads."""
        loops = [Contestant(it.name, it.name, OWN_ENVIRONMENT, "peak", "") for it in instructions]
        self._play(_PEAKS, [(loop, loop.name) for loop in loops])

    def match(self, row: Row, contestants: Sequence[Contestant], instruction: str) -> None:
        source = self.home.model(row.source)
        if source is None:
            making = "benchmarks.models.zoo --make --contest" if row.part else "benchmarks.models"
            print(f"\n{row.title}: left out, {row.source} is missing; run: python -m {making}")
            if row.part:
                self.record(Model(row.name, row.title, "not made", row.batch, 0, row.part))
            return
        multiplied = macs(source.read_bytes()) if source.suffix == ".tflite" else 0
        self.record(Model(row.name, row.title, row.note, row.batch, multiplied, row.part))
        entered = []
        for contestant in contestants_for(row, contestants):
            try:
                path = instruction if contestant.name == PEAK else str(self._path(row, contestant))
                entered.append((contestant, path))
            except (NotCompiled, FileNotFoundError) as error:
                for threads in self.threads:
                    self._failed(row, (contestant.name, threads), error)
        self._play(row, entered)

    def _play(self, row: Row, entered: Sequence[tuple[Contestant, str]]) -> None:
        print(f"\n{row.title}", flush=True)
        specs = {
            (contestant.name, threads): self._spec(row, contestant, path, threads)
            for contestant, path in entered
            for threads in self.threads
        }
        played: list[Key] = []

        def loaded(key: Key, process: ContestantProcess) -> None:
            played.append(key)
            self.record(Entry(row.name, *key, specs[key].job.cores, process.info))

        turns = play(specs, self.log, self.rules, lambda key, error: self._failed(row, key, error), loaded)
        for (name, threads), number, attempt, turn in turns:
            self.record(Slice(row.name, name, threads, number, attempt, turn))
        for name, threads in played:
            figure = self.results.figure(row.name, name, threads)
            print(f"  {name:20} {threads} thread(s) {figure.text if figure else '-':>9} ms", flush=True)

    def _spec(self, row: Row, contestant: Contestant, path: str, threads: int) -> ProcessSpec:
        options = contestant.options | {"shape": dimensions(row.shape)}
        inputs = str(self.home.models / row.inputs) if row.inputs else ""
        job = Job(contestant.framework, path, threads, cores_for(threads), row.batch, options, inputs)
        return ProcessSpec(self.home.python(contestant.environment), job)

    def _path(self, row: Row, contestant: Contestant) -> Path:
        file = row.files[contestant.file]
        model = self.home.model(file)
        if model is None:
            raise FileNotFoundError(f"{file} is missing; run: python -m benchmarks.models")
        if not contestant.is_octet:
            return model
        open_shape = (row.batch, *row.shape) if contestant.file in _OPEN and row.shape else ()
        return artifact(self.home, model, contestant.numerics, open_shape)

    def _failed(self, row: Row, key: Key, error: Exception) -> None:
        name, threads = key
        print(f"  {name:20} {threads} thread(s) failed: {error}", flush=True)
        self.record(Entry(row.name, name, threads, cores_for(threads), {}, str(error)))
