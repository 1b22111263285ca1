"""What the children do that check an artifact. They load TVM's runtime at most, never the compiler.

`reference` asks the source framework itself; `verify` loads the linked library, which is native code that a hostile
model shaped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.compiler.references import REFERENCES
from service.compiler.sandbox import Report
from service.core.artifact import ArtifactConfig
from service.core.build import Stage
from service.core.digest import digest_of_file
from service.core.signature import ModelSignature
from service.core.vectors import sample_inputs

EXPECTED_FILE, REFERENCE_FILE = "expected.npz", "reference.npz"


def write_answers(outputs: Sequence[Sequence[NDArray[Any]]], file: str) -> None:
    """The outputs of each sample, as arrays called `sample.output`."""
    answers: dict[str, Any] = {
        f"{index}.{position}": output for index, sample in enumerate(outputs) for position, output in enumerate(sample)
    }
    np.savez_compressed(file, **answers)


def reference_role(request: Mapping[str, Any], report: Report) -> Mapping[str, Any]:
    """The source model in its own runtime -> its answers to the generated inputs, in the working directory."""
    report.at(stage=Stage.VERIFY)
    before = digest_of_file(Path(request["source"]))
    samples = list(sample_inputs(ModelSignature.from_json(request["signature"]), request["samples"]))
    outputs = REFERENCES[request["format"]].answer(request["source"], request["numerics"], samples)
    write_answers(outputs, REFERENCE_FILE)
    return {"source": before}


def verify_role(request: Mapping[str, Any], report: Report) -> Mapping[str, Any]:
    """The linked artifact against expected answers: `runtime.compare`'s report."""
    from service import runtime

    report.at(stage=Stage.VERIFY)
    config = ArtifactConfig.from_json(request["config"])
    model = runtime.load_files(config, Path(request["library"]), Path(request["constants"]))
    return runtime.compare(model, [(name, Path(path).read_bytes()) for name, path in request["vectors"]])


def profile_role(request: Mapping[str, Any], report: Report) -> Mapping[str, Any]:
    """The linked artifact, on one thread -> how long each of its calls takes (`runtime.profile.Profile`)."""
    from service import runtime
    from service.runtime.profile import profile

    config = ArtifactConfig.from_json(request["config"])
    model = runtime.load_files(config, Path(request["library"]), Path(request["constants"]), threads=1)
    return profile(model, peak=request["peak"], seconds=request["seconds"], fewest_rounds=1).to_json()


def time_role(request: Mapping[str, Any], report: Report) -> Mapping[str, Any]:
    """Artifacts of one model -> how long the kernels of each take (`runtime.racing.time_calls`)."""
    from service.runtime.racing import time_calls

    return {"seconds": time_calls(_models(request), request["seconds"])}


def race_role(request: Mapping[str, Any], report: Report) -> Mapping[str, Any]:
    """Two artifacts of one model -> which is faster (`runtime.racing.race`)."""
    from service.runtime.racing import race

    first, second = _models(request)
    return race(first, second, request["seconds"]).to_json()


def _models(request: Mapping[str, Any]) -> list[Any]:
    """They share their threads, as models of one server do."""
    from service import runtime
    from service.runtime.threads import Threads

    threads, models = Threads(0), []
    for files in request["models"]:
        config = ArtifactConfig.from_json(files["config"])
        models.append(runtime.load_files(config, Path(files["library"]), Path(files["constants"]), threads=threads))
    return models
