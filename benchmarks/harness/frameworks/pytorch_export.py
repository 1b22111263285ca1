"""PyTorch: an exported program (`.pt2`) that torchao quantized, compiled by Inductor with frozen weights, as in
torchao's guide for x86.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch  # type: ignore[import-not-found]
import torch._inductor.config as inductor  # type: ignore[import-not-found]
import torchao.quantization.pt2e  # type: ignore[import-not-found]  # noqa: F401  the operators of such programs

from benchmarks.harness.frameworks import Job, Loaded, random_input


def load(job: Job) -> Loaded:
    torch.set_num_threads(job.threads)
    torch.set_num_interop_threads(1)
    inductor.freezing = True
    program = torch.export.load(job.path)
    (sample,) = program.example_inputs[0]
    given = torch.from_numpy(random_input(tuple(sample.shape), np.dtype(np.float32), 0))
    torch.no_grad().__enter__()  # for as long as the process runs
    model = torch.compile(program.module())
    latest: list[Any] = [None]

    def call() -> None:
        latest[0] = model(given)

    return Loaded(call, lambda: [each.numpy() for each in latest[0]], {"version": torch.__version__})
