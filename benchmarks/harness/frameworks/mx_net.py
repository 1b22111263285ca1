"""MXNet 1.9.1 with oneDNN: a symbol and its parameters in one zip archive, as Octet reads it.

Options: `precision` is `int8` for a symbol that `quantize_model_mkldnn` wrote, whose layers are fused already, or `f32`
for one that MXNet fuses when it binds the symbol.
"""

from __future__ import annotations

import os
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness.frameworks import Job, Loaded, random_input


def load(job: Job) -> Loaded:
    os.environ["MXNET_SUBGRAPH_BACKEND"] = "NONE" if job.options["precision"] == "int8" else "MKLDNN"
    import mxnet  # reads this setting

    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(job.path) as archive:
        archive.extractall(folder)
        symbol, arguments, auxiliary = mxnet.model.load_checkpoint(str(Path(folder, "model")), 0)
    given = job.given()
    shape = (job.batch, *map(int, job.options["shape"].split(",")))
    value = next(iter(given.values())) if given else random_input(shape, np.dtype(np.float32), 0)
    executor = symbol.simple_bind(mxnet.cpu(), data=value.shape, grad_req="null")
    executor.copy_params_from(arguments, auxiliary, allow_extra_params=True)
    executor.arg_dict["data"][:] = value
    latest: list[Any] = [None]

    def call() -> None:
        (latest[0], *_) = executor.forward(is_train=False)
        latest[0].wait_to_read()

    return Loaded(call, lambda: [latest[0].asnumpy()], {"version": mxnet.__version__})
