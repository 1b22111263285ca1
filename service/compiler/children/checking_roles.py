"""The roles of children that check an artifact. They never load the compiler.

`reference` runs the model in the source framework. The other roles load the linked library, which is native code that
a hostile model may have influenced.
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
from service.core.vectors import read_probes, sample_inputs

EXPECTED_FILE, PROBES_FILE = "expected.npz", "probes.npz"


def reference_file(session: int) -> str:
    """Returns the name of the file with the outputs of one session of the reference runtime."""
    return f"reference-{session}.npz"


def reference_probes_file(session: int) -> str:
    """Returns the name of the file of that session's outputs for the inputs that the oracle chose."""
    return f"reference-{session}-probes.npz"


def write_answers(outputs: Mapping[int, Sequence[NDArray[Any]]], file: str) -> None:
    """Writes the outputs of samples, by the number of the sample, as arrays that are named `sample.output`."""
    answers: dict[str, Any] = {
        f"{number}.{position}": output for number, sample in outputs.items() for position, output in enumerate(sample)
    }
    np.savez_compressed(file, **answers)


def reference_role(request: Mapping[str, Any], report: Report) -> Mapping[str, Any]:
    """Runs the source model in each session of its own runtime, on the generated inputs and on those that the oracle
    chose (in the file `probes` of the request, if there is one).

    Returns:
        For each session either `error`, the reason why it could not load the model; or `refused` and `answered`.
        `refused` maps the number of each input that the session rejected to its error message; the inputs that the
        oracle chose are numbered after the others. `answered` is the number of samples whose outputs are in
        `reference_file(session)` and `reference_probes_file(session)`.
    """
    report.at(stage=Stage.VERIFY)
    before = digest_of_file(Path(request["source"]))
    signature = ModelSignature.from_json(request["signature"])
    samples = list(sample_inputs(signature, request["samples"]))
    patterns = len(samples)
    samples += read_probes(Path(request["probes"]).read_bytes(), signature) if request["probes"] else []
    reference = REFERENCES[request["format"]]
    said: list[dict[str, Any]] = []
    for place, session in enumerate(reference.sessions[request["numerics"]]):
        answers: dict[int, Sequence[NDArray[Any]]] = {}
        refused: dict[str, str] = {}
        try:
            answer = reference.open(request["source"], session)
        except Exception as error:  # any exception of a framework is reported as its result
            said.append({"error": str(error) or type(error).__name__})
        else:
            for number, sample in enumerate(samples):
                try:
                    answers[number] = answer(sample)
                except Exception as error:
                    refused[str(number)] = str(error) or type(error).__name__
                    if signature.states:  # the later calls of the sequence depend on this one
                        break
            said.append({"refused": refused, "answered": len(answers)})
        probes = {number - patterns: answer for number, answer in answers.items() if number >= patterns}
        write_answers({number: each for number, each in answers.items() if number < patterns}, reference_file(place))
        write_answers(probes, reference_probes_file(place))
    return {"source": before, "sessions": said}


def verify_role(request: Mapping[str, Any], report: Report) -> Mapping[str, Any]:
    """Runs the linked artifact and compares its outputs with the expected ones (`runtime.compare`)."""
    from service import runtime

    report.at(stage=Stage.VERIFY)
    config = ArtifactConfig.from_json(request["config"])
    model = runtime.load_files(config, Path(request["library"]), Path(request["constants"]))
    vectors, probes = ([Path(path).read_bytes() for path in request[name]] for name in ("vectors", "probes"))
    comparisons = runtime.compare(model, vectors, probes)
    return {"comparisons": [comparison.to_json() for comparison in comparisons]}


def profile_role(request: Mapping[str, Any], report: Report) -> Mapping[str, Any]:
    """Measures the time of each call of the linked artifact, on one thread (`runtime.profile.Profile`)."""
    from service import runtime
    from service.runtime.profile import profile

    config = ArtifactConfig.from_json(request["config"])
    model = runtime.load_files(config, Path(request["library"]), Path(request["constants"]), threads=1)
    return profile(model, peak=request["peak"], seconds=request["seconds"], fewest_rounds=1).to_json()


def time_role(request: Mapping[str, Any], report: Report) -> Mapping[str, Any]:
    """Measures the times of kernels in several artifacts of one model (`runtime.racing.time_calls`)."""
    from service.runtime.racing import time_calls

    return {"seconds": time_calls(_models(request), request["seconds"])}


def race_role(request: Mapping[str, Any], report: Report) -> Mapping[str, Any]:
    """Compares the speed of two artifacts of one model (`runtime.racing.race`)."""
    from service.runtime.racing import race

    first, second = _models(request)
    return race(first, second, request["seconds"]).to_json()


def _models(request: Mapping[str, Any]) -> list[Any]:
    """Loads the models of the request. They share threads, as the models of one server do."""
    from service import runtime
    from service.runtime.threads import Threads

    threads, models = Threads(0), []
    for files in request["models"]:
        config = ArtifactConfig.from_json(files["config"])
        models.append(runtime.load_files(config, Path(files["library"]), Path(files["constants"]), threads=threads))
    return models
