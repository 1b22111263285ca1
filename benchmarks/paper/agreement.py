"""Networks with random weights, in their framework and in Octet, on the same input: the share of equal outputs.

The accuracy of such a network means nothing, so it is not measured.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.harness.artifacts import NotCompiled, artifact
from benchmarks.harness.contestant import ContestantFailed, ContestantProcess
from benchmarks.harness.frameworks import Job, dimensions
from benchmarks.harness.home import OWN_ENVIRONMENT, Home
from benchmarks.harness.machine import cores_for
from benchmarks.models.catalog import Row, rows_named
from benchmarks.paper.store import Measurement, Run
from service.core.builds.numerics import MXNET_ONEDNN, ONNXRUNTIME, TORCH_X86

PART = "agreement"


@dataclass(frozen=True)
class Framework:
    """A framework whose outputs Octet reproduces.

    Attributes:
        file: the format of its files, a key of `Row.files`.
        module: its module of `harness.frameworks`.
    """

    name: str
    file: str
    module: str
    environment: str
    numerics: str


FRAMEWORKS = (
    Framework("ONNX Runtime", "onnx", "onnx_runtime", "onnxruntime", ONNXRUNTIME),
    Framework("PyTorch", "torch", "pytorch", "torch", TORCH_X86),
    Framework("MXNet", "mxnet", "mx_net", "mxnet", MXNET_ONEDNN),
)
NETWORKS = (
    *("resnet50", "resnet18", "mobilenet_v2", "inception_v3"),
    *("resnet50_v1", "resnet18_v1", "inceptionv3"),
)


def measure(home: Home, run: Run) -> Iterator[Measurement]:
    """Measures each network whose file and framework exist; prints the others."""
    for row in rows_named(NETWORKS):
        for framework in FRAMEWORKS:
            model = home.model(row.files.get(framework.file, "")) if framework.file in row.files else None
            if framework.file not in row.files:
                continue
            try:
                if model is None:
                    raise FileNotFoundError(f"{row.files[framework.file]} is missing; run: python -m benchmarks.models")
                values, versions = compared(home, row, model, framework)
            except (ContestantFailed, NotCompiled, FileNotFoundError) as error:
                print(f"{row.name}, {framework.name}: left out: {error}", flush=True)
                continue
            print(f"{row.name}, {framework.name}: {values}", flush=True)
            yield run.measurement(PART, (row.name, framework.name, framework.numerics), values, versions)


def compared(home: Home, row: Row, model: Path, framework: Framework) -> tuple[dict[str, float], dict[str, str]]:
    """Returns the share of equal outputs, the largest difference and the versions of both.

    Raises:
        ContestantFailed: one of the two could not run the model.
        NotCompiled: Octet could not compile it.
    """
    compiled = artifact(home, model, framework.numerics, (row.batch, *row.shape))
    options = {"precision": "int8", "shape": dimensions(row.shape)}
    outputs, versions = [], {}
    with tempfile.TemporaryDirectory() as folder:
        for name, module, environment, path in (
            ("octet", "octet", OWN_ENVIRONMENT, compiled),
            (framework.name, framework.module, framework.environment, model),
        ):
            job = Job(module, str(path), 1, cores_for(1), row.batch, options)
            with ContestantProcess(home.python(environment), job, Path(folder, "log")) as process:
                outputs.append(process.outputs())
                versions[name] = process.info["version"]
    ours, theirs = (np.concatenate([each.ravel() for each in side]).astype(np.float64) for side in outputs)
    return {"equal": 100 * float((ours == theirs).mean()), "difference": float(abs(ours - theirs).max())}, versions
