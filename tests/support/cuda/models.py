"""Compiles models for a GPU and runs their call plans on the CPU, with an emulation of each launch."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import tvm

from service.compiler.kernels.group import KernelLibrary
from service.compiler.kernels.kernel import DeviceFunction, Kernel
from service.compiler.lowering import constants
from service.compiler.lowering.call_plan import call_plan
from service.compiler.lowering.passes import PIPELINE, Context
from service.compiler.qnn import graph
from service.compiler.qnn.numerics import get_mode
from service.compiler.targets import codegen_target
from service.core.artifacts.call_plan import Buffer, Space
from service.core.models.arrays import Array
from service.core.target import parse_target
from tools.cuda_emulator.emulated_kernel import EmulatedKernel

_ENTRY = 'extern "C" __global__'
_FILLER = 0xA5  # the value of bytes in memory that was not written yet


class CardModel:
    """`module` compiled in `mode` for a GPU. Without a kernel library, TVM generates all code.

    Attributes:
        context: the context of the passes, with their results.
        module: the module after the passes.
    """

    def __init__(
        self,
        module: tvm.IRModule,
        mode: str,
        library: KernelLibrary | None = None,
        *,
        capability: str = "sm_80",
        sanitize: bool = True,
    ) -> None:
        self.context = Context(get_mode(mode), codegen_target(parse_target(f"cuda-{capability}")), library)
        self.module = PIPELINE.run(module, self.context)
        self.outputs = [(graph.shape_of(each), str(each.ty.dtype)) for each in graph.results_of(graph.main_of(module))]
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "constants"
            slots = constants.write(self.context.constants, path)
            self._constants = np.frombuffer(path.read_bytes(), np.uint8)
        launches = {symbol: kernel.launch for symbol, kernel in self.kernels.items() if kernel.launch is not None}
        self.plan = call_plan(self.module, slots, self.context.activations, 0, launches)
        self._sources = _join_sources({call.symbol: self.kernels[call.symbol] for call in self.plan.calls})
        self._capability, self._sanitize = capability, sanitize

    @property
    def kernels(self) -> Mapping[str, Kernel]:
        assert self.context.selection is not None
        return self.context.selection.kernels

    def __call__(self, inputs: Sequence[Array], seed: int = 0) -> list[Array]:
        """Returns the outputs for `inputs`.

        Args:
            seed: the seed for the order of blocks and threads in each launch.

        Raises:
            DeviceFault: a kernel did something that is forbidden.
        """
        arena = np.full(self.plan.arena_bytes, _FILLER, np.uint8)
        outputs = [np.zeros(shape, dtype) for shape, dtype in self.outputs]

        def memory(buffer: Buffer) -> Array:
            if buffer.space is Space.INPUT:
                return np.array(inputs[buffer.at], order="C").reshape(-1).view(np.uint8)
            if buffer.space is Space.OUTPUT:
                return outputs[buffer.at].reshape(-1).view(np.uint8)
            space = arena if buffer.space is Space.ARENA else self._constants.copy()
            return space[buffer.at : buffer.at + buffer.bytes]

        buffers = [memory(buffer) for buffer in self.plan.buffers]
        assert self.plan.launches is not None
        for call, launch in zip(self.plan.calls, self.plan.launches, strict=True):
            source = self._sources[call.symbol]
            kernel = EmulatedKernel(source, call.symbol, architecture=self._capability, sanitize=self._sanitize)
            operands = [buffers[operand] for operand in call.operands]
            kernel.launch(launch.grid, launch.block, launch.shared_bytes, operands, seed=seed)
        for copied, destination in self.plan.copies:
            buffers[destination][...] = buffers[copied]
        return outputs


def _join_sources(kernels: Mapping[str, Kernel]) -> dict[str, str]:
    """Maps each symbol to its source. Kernels with the same headers share one source, which is compiled once."""
    parts: dict[str, list[tuple[str, str]]] = {}
    for symbol, kernel in kernels.items():
        assert isinstance(kernel.function, DeviceFunction)
        headers, entry, rest = kernel.function.source.partition(_ENTRY)
        parts.setdefault(headers, []).append((symbol, entry + rest.replace("OCTET_KERNEL", symbol, 1)))
    return {
        symbol: headers + "".join(text for _, text in group) for headers, group in parts.items() for symbol, _ in group
    }
