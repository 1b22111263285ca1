"""The runtimes that are compared. Each is loaded in its own process, which is pinned before it imports anything.

One call is one inference on inputs that were bound before: for Octet, `Model.run`; for LiteRT, `invoke`, without
copying inputs in and outputs out; for stock TVM, the virtual machine's function.
"""

from __future__ import annotations

import multiprocessing
import os
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

import numpy as np

from benchmarks.harness.turns import Array, call_repeatedly

_LOAD_LIMIT_S = 600.0

Call = Callable[[], object]
Outputs = Callable[[], list[Array]]


class Contender(Protocol):
    """A model under one framework, as a value that can be sent to another process."""

    def load(self, inputs: Sequence[Array], threads: int) -> tuple[Call, Outputs]:
        """Loads a model. Returns a function that runs one inference, and one that returns the last outputs."""


@dataclass(frozen=True)
class LiteRT:
    """LiteRT: its reference kernels if `reference` is true; otherwise its default delegate (XNNPACK on a CPU)."""

    model: Path
    reference: bool = False

    def load(self, inputs: Sequence[Array], threads: int) -> tuple[Call, Outputs]:
        from ai_edge_litert.interpreter import Interpreter, OpResolverType

        resolver = OpResolverType.BUILTIN_REF if self.reference else OpResolverType.AUTO
        interpreter = Interpreter(str(self.model), num_threads=threads, experimental_op_resolver_type=resolver)
        interpreter.allocate_tensors()
        for detail, value in zip(interpreter.get_input_details(), inputs, strict=True):
            interpreter.set_tensor(detail["index"], value)
        places = [detail["index"] for detail in interpreter.get_output_details()]
        return interpreter.invoke, lambda: [interpreter.get_tensor(place) for place in places]


@dataclass(frozen=True)
class Octet:
    """An artifact: the OCI layout that holds it, and its digest."""

    layout: Path
    digest: str

    def load(self, inputs: Sequence[Array], threads: int) -> tuple[Call, Outputs]:
        from service import runtime
        from service.core.digest import parse_digest

        model = runtime.load(self.layout, parse_digest(self.digest), threads=threads)
        given = list(inputs)
        return lambda: model.run(given), lambda: model.run(given)


@dataclass(frozen=True)
class StockTVM:
    """Apache TVM's own import of a TFLite file, compiled for this machine's CPU by its default pipeline."""

    model: Path

    def load(self, inputs: Sequence[Array], threads: int) -> tuple[Call, Outputs]:
        os.environ["TVM_NUM_THREADS"] = str(threads)
        import tflite
        import tvm
        from tvm import relax
        from tvm.relax.frontend.tflite import from_tflite
        from tvm.target.codegen import llvm_get_system_cpu

        module = from_tflite(tflite.Model.GetRootAsModel(self.model.read_bytes(), 0))
        target = tvm.target.Target({"kind": "llvm", "mcpu": llvm_get_system_cpu(), "num-cores": threads})
        function = relax.VirtualMachine(tvm.compile(module, target=target), tvm.cpu())["main"]
        given = [tvm.runtime.tensor(value) for value in inputs]

        def outputs() -> list[Array]:
            result = function(*given)
            return [tensor.numpy() for tensor in ([result] if hasattr(result, "numpy") else result)]

        return lambda: function(*given), outputs


class Running:
    """A contender in its process; a `turns.Timed`. Raises RuntimeError with the traceback if it cannot be loaded.

    Attributes:
        outputs: its results for the inputs.
    """

    def __init__(self, contender: Contender, inputs: Sequence[Array], cores: Sequence[int]) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, contender, inputs, list(cores)), daemon=True)
        self._process.start()
        theirs.close()
        try:
            self.outputs: list[Array] = self._answer(_LOAD_LIMIT_S)
        except BaseException:
            self.close()
            raise

    @property
    def pids(self) -> Sequence[int]:
        return [self._process.pid] if self._process.pid else []

    def durations_s(self, seconds: float) -> list[float]:
        self._connection.send(seconds)
        durations: list[float] = self._answer(_LOAD_LIMIT_S)
        return durations

    def close(self) -> None:
        self._connection.close()
        self._process.join(10)
        if self._process.is_alive():
            self._process.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _answer(self, limit_s: float) -> list:  # type: ignore[type-arg]
        if not self._connection.poll(limit_s):
            raise RuntimeError(f"no answer within {limit_s:.0f} s")
        try:
            answer = self._connection.recv()
        except EOFError as error:
            self._process.join(10)
            raise RuntimeError(f"the process ended with exit status {self._process.exitcode}") from error
        if isinstance(answer, str):
            raise RuntimeError(answer)
        return list(answer)


def _serve(connection: Connection, contender: Contender, inputs: Sequence[Array], cores: Sequence[int]) -> None:
    os.sched_setaffinity(0, cores)
    try:
        call, outputs = contender.load(inputs, len(cores))
        call()
        connection.send(outputs())
        while True:
            connection.send(call_repeatedly(call, connection.recv()))
    except EOFError:
        return
    except Exception:
        connection.send(traceback.format_exc())


def random_inputs(model: Path) -> list[Array]:
    """Returns inputs for a TFLite model, over the whole range of their type. They are the same on every call."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    interpreter = Interpreter(str(model), experimental_op_resolver_type=OpResolverType.BUILTIN_REF)
    rng = np.random.default_rng(0)
    inputs: list[Array] = []
    for detail in interpreter.get_input_details():
        limits = np.iinfo(detail["dtype"])
        inputs.append(rng.integers(limits.min, limits.max, detail["shape"], detail["dtype"], endpoint=True))
    return inputs
