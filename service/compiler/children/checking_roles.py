"""The roles of children that check an artifact. These children never load the compiler.

`reference` runs the model in the source framework. The other roles load the linked library. This library is native
code, which a hostile model may have influenced.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from service.compiler.children.handler import handles
from service.compiler.messages.checking import (
    PROFILE,
    RACE,
    REFERENCE,
    TIME,
    VERIFY,
    ProfileRequest,
    ProfileResult,
    RaceResult,
    ReferenceRequest,
    ReferenceResult,
    SessionResult,
    Shorter,
    SpeedRequest,
    TimeResult,
    VerifyRequest,
    VerifyResult,
)
from service.compiler.messages.files import reference_file, reference_probes_file
from service.compiler.references import REFERENCES
from service.compiler.sandbox import Report
from service.core.builds.build import Stage
from service.core.digest import digest_of_file
from service.core.models.arrays import Array
from service.core.models.buckets import pad_inputs
from service.core.verification.free_rows import fill_rows
from service.core.verification.vectors import masked_samples, read_probes, sample_inputs

if TYPE_CHECKING:  # only the children that run artifacts load the runtime
    from service.runtime.model import Model


def write_answers(outputs: Mapping[int, Sequence[Array]], file: str) -> None:
    """Writes an `.npz` file in which the array `S.O` is output number O of sample number S."""
    answers: dict[str, Any] = {
        f"{number}.{position}": output for number, sample in outputs.items() for position, output in enumerate(sample)
    }
    np.savez_compressed(file, **answers)


@handles(REFERENCE)
def reference_role(request: ReferenceRequest, report: Report) -> ReferenceResult:
    """Runs the source model in each session of its own runtime, on the generated inputs and on those that the oracle
    chose.

    Writes the outputs to `reference_file(session)` and `reference_probes_file(session)`.
    """
    report.at(stage=Stage.VERIFY)
    before, signature = digest_of_file(request.source), request.signature
    samples = list(sample_inputs(signature, request.samples))
    patterns = len(samples)
    samples += [] if request.probes is None else read_probes(request.probes.read_bytes(), signature)
    reference = REFERENCES[request.format]
    results: list[SessionResult] = []
    for index, session in enumerate(reference.sessions[request.numerics]):
        answers: dict[int, Sequence[Array]] = {}
        refused: dict[str, str] = {}
        try:
            answer = reference.open(str(request.source), session)
        except Exception as error:  # frameworks raise many types of exceptions; each is a result to report
            results.append(SessionResult(str(error) or type(error).__name__))
        else:
            for number, sample in enumerate(samples):
                try:
                    answers[number] = fill_rows(answer(signature.complete(sample)), signature)
                except Exception as error:
                    refused[str(number)] = str(error) or type(error).__name__
                    if signature.states:  # the samples are consecutive calls, and the next ones depend on this one
                        break
            results.append(SessionResult(refused=refused, answered=len(answers)))
        probes = {number - patterns: answer for number, answer in answers.items() if number >= patterns}
        write_answers({number: each for number, each in answers.items() if number < patterns}, reference_file(index))
        write_answers(probes, reference_probes_file(index))
    return ReferenceResult(before, tuple(results))


@handles(VERIFY)
def verify_role(request: VerifyRequest, report: Report) -> VerifyResult:
    """Runs the linked artifact and compares its outputs with the expected ones (`runtime.compare`)."""
    from service import runtime

    report.at(stage=Stage.VERIFY)
    model = runtime.load_files(request.config, *request.paths)
    vectors, probes = ([path.read_bytes() for path in paths] for paths in (request.vectors, request.probes))
    different = tuple(each.length for each in request.shorter if not _computes(model, each))
    return VerifyResult(tuple(runtime.compare(model, vectors, probes)), different)


def _computes(model: Model, shorter: Shorter) -> bool:
    """Returns true if the model computes the expected outputs for shorter inputs, which are padded."""
    with np.load(shorter.outputs, allow_pickle=False) as arrays:
        expected = {name: arrays[name] for name in arrays.files}
    for number, sample in enumerate(masked_samples(shorter.signature)):
        if f"{number}.0" not in expected:
            break
        outputs = model.run_padded(pad_inputs(sample, model.signature), shorter.length)
        for position, output in enumerate(outputs):
            own = expected[f"{number}.{position}"]
            if equal_beginning(own, output) != own.size:
                return False
    return True


def equal_beginning(short: Array, long: Array) -> int:
    """Counts the values of `short` that are equal to the value of `long` at the same index."""
    beginning = long[tuple(map(slice, short.shape))] if short.ndim == long.ndim else long
    if beginning.shape != short.shape:
        return 0
    return int(np.sum((beginning == short) | (np.isnan(beginning) & np.isnan(short))))


@handles(PROFILE)
def profile_role(request: ProfileRequest, report: Report) -> ProfileResult:
    """Measures the time of each call of the linked artifact, on one thread (`runtime.profile.Profile`)."""
    from service import runtime
    from service.runtime.profile import profile

    model = runtime.load_files(request.config, *request.paths, threads=1)
    measured = profile(model, peak=request.peak, seconds=request.seconds, fewest_rounds=1)
    return ProfileResult.from_json(measured.to_json())


@handles(TIME)
def time_role(request: SpeedRequest, report: Report) -> TimeResult:
    """Measures the times of kernels in several artifacts of one model (`runtime.racing.time_calls`)."""
    from service.runtime.racing import time_calls

    return TimeResult(tuple(time_calls(_load_models(request), request.seconds)))


@handles(RACE)
def race_role(request: SpeedRequest, report: Report) -> RaceResult:
    """Compares the speed of two artifacts of one model (`runtime.racing.race`)."""
    from service.runtime.racing import race

    first, second = _load_models(request)
    return RaceResult.from_json(race(first, second, request.seconds).to_json())


def _load_models(request: SpeedRequest) -> list[Any]:
    """Loads the models of the request. The models share their threads, like the models of one server."""
    from service import runtime
    from service.runtime.threads import Threads

    threads = Threads(0)
    return [runtime.load_files(files.config, *files.paths, threads=threads) for files in request.models]
