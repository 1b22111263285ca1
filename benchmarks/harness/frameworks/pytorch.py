"""PyTorch: a frozen TorchScript file, int8 by FX quantization or float32, in channels-last order."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch  # type: ignore[import-not-found]

from benchmarks.harness.frameworks import Job, Loaded, random_input

_WARM_UP_CALLS = 3  # TorchScript profiles the first call, and optimizes on the second


def load(job: Job) -> Loaded:
    warnings.simplefilter("ignore", DeprecationWarning)  # TorchScript's warnings
    torch.set_num_threads(job.threads)
    torch.set_num_interop_threads(1)
    torch.backends.quantized.engine = "x86"
    model = torch.jit.load(job.path).eval()
    if job.options["precision"] == "f32":
        model = torch.jit.optimize_for_inference(model)
    shape = map(int, job.options["shape"].split(","))
    value = random_input((job.batch, *shape), np.dtype(np.float32), 0)
    given = torch.from_numpy(value).contiguous(memory_format=torch.channels_last)
    torch.inference_mode().__enter__()  # for as long as the process runs
    latest: list[Any] = [None]

    def call() -> None:
        latest[0] = model(given)

    for _ in range(_WARM_UP_CALLS):
        call()
    return Loaded(call, lambda: [latest[0].numpy()], {"version": torch.__version__})
