"""The expected outputs of an artifact: the oracle and the source framework compute them while the artifact is built."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from service.compiler.build.background import Poll, in_background
from service.compiler.build.expected import Answers, Expected, expected_of
from service.compiler.build.steps import Steps
from service.compiler.messages.checking import ORACLE, REFERENCE, OracleRequest, ReferenceRequest
from service.compiler.messages.files import (
    EXPECTED_FILE,
    MODULE_FILE,
    PROBES_FILE,
    reference_file,
    reference_probes_file,
)
from service.compiler.messages.message import Malformed
from service.compiler.references import Reference, reference_for
from service.core.artifacts.artifact import Report
from service.core.builds.options import batch_of, counts_values
from service.core.errors import BuildFailed
from service.core.models.signature import ModelSignature
from service.core.target import detect_host
from service.core.verification.vectors import PATTERNS, input_kinds
from service.core.verification.witnesses import CANONICAL

SAMPLES = PATTERNS
_POLL_S = 0.1
_SAMPLES_OF_BATCH = 4  # the number of samples of a batched model; each sample is a whole batch of inputs
_MOST_INPUTS = 512  # the limit of batch size times samples: a large batch gets fewer samples


@contextmanager
def answering(
    steps: Steps, signature: ModelSignature, source_format: str, probes: int
) -> Iterator[Callable[[], Answers]]:
    """Runs the oracle in the background. Also runs the reference runtime of the source format, if it is installed.

    If the oracle also chooses inputs, the runtime starts after the oracle, because it computes the outputs for those
    inputs too.

    Args:
        probes: the number of inputs that the oracle chooses (`compiler.children.probing.probe_count`).

    Yields:
        A function that waits for both and returns their outputs. When the block ends, the children are killed.
    """
    asking = _ExpectedOutputs(steps, signature, source_format, probes)
    with in_background(2) as start:
        oracle = start(asking.oracle)
        reference = start(partial(asking.reference, oracle))
        yield lambda: asking.answers(oracle, reference)


class _ExpectedOutputs:
    def __init__(self, steps: Steps, signature: ModelSignature, source_format: str, probes: int) -> None:
        self._steps, self._format = steps, source_format
        self._batch = batch_of(steps.request.options)
        of_batch = max(1, min(_SAMPLES_OF_BATCH, _MOST_INPUTS // self._batch))
        self._samples = SAMPLES if self._batch == 1 else of_batch
        self._probes = probes if self._batch == 1 else 0
        self._signature = signature
        self._reference = reference_for(source_format, steps.request.numerics)
        self._version = self._reference.version(steps.settings) if self._reference else None

    def oracle(self, poll: Poll) -> tuple[Expected, dict[str, Any]]:
        """Runs the oracle. Returns its outputs, and the special cases that the operators met (`reached`)."""
        module = self._steps.output("import", MODULE_FILE)
        numerics = self._steps.request.numerics
        result = self._steps.ask(
            ORACLE,
            OracleRequest(module, self._batch, self._probes, numerics, self._signature, self._samples),
            readable=[module],
            question=self._question(),
            files=[EXPECTED_FILE, PROBES_FILE],
            poll=poll,
        )
        file, probes = (self._steps.output("oracle", name) for name in (EXPECTED_FILE, PROBES_FILE))
        return Expected(CANONICAL, file, probes), dict(result.reached)

    def reference(self, oracle: Future[tuple[Expected, dict[str, Any]]], poll: Poll) -> list[Expected]:
        """Runs the model in each session of the reference runtime (`Reference.sessions`) and returns the outputs.
        Returns an empty list if no runtime defines the numerics mode.
        """
        steps, reference = self._steps, self._reference
        if reference is None:
            return []
        witnesses = reference.witnesses(steps.request.numerics, self._version)
        if reason := self._reason_to_skip(reference):
            return [Expected(witness, reason=reason) for witness in witnesses]
        files = [reference_file(index) for index in range(len(witnesses))]
        chosen = [reference_probes_file(index) for index in range(len(witnesses))]
        probes = self._wait_for_probes(oracle, poll)
        try:
            request = ReferenceRequest(
                steps.request.source, self._format, probes, steps.request.numerics, self._signature, self._samples
            )
            result = steps.ask(
                REFERENCE,
                request,
                readable=[steps.request.source, *([] if probes is None else [probes])],
                question={**self._question(), "name": reference.name, "version": self._version},
                files=[*files, *chosen],
                poll=poll,
                environment=reference.environment(steps.settings),
            )
            count = self._samples + self._probes
            return [
                expected_of(witness, steps.output("reference", file), steps.output("reference", extra), session, count)
                for witness, file, extra, session in zip(witnesses, files, chosen, result.sessions, strict=True)
            ]
        except ValueError as error:
            raise BuildFailed("the reference process returned a malformed result") from error
        except BuildFailed as error:
            if isinstance(error.__cause__, Malformed):
                raise
            return [Expected(witness, reason=f"could not run the model: {error.message}") for witness in witnesses]

    def _wait_for_probes(self, oracle: Future[tuple[Expected, dict[str, Any]]], poll: Poll) -> Path | None:
        """Waits for the oracle and returns the file with the inputs that it chose, or None if it chose none."""
        if not self._probes:
            return None
        while not oracle.done():
            poll()
            wait([oracle], timeout=_POLL_S)
        return oracle.result()[0].probes

    def answers(self, oracle: Future[tuple[Expected, dict[str, Any]]], reference: Future[list[Expected]]) -> Answers:
        """Waits for both children. If the reference did not run, logs the reason."""
        (own, reached), expected = self._steps.awaited(oracle), self._steps.awaited(reference)
        for each in expected[:1]:
            if each.reason:
                self._steps.progress.log(f"{each.witness.title} {each.reason}")
        no_witness = "" if expected else f"no runtime defines {self._steps.request.numerics}"
        kinds = input_kinds(self._samples, self._samples + self._probes)
        return Answers(kinds, [own, *expected[:1]], expected[1:], no_witness, reached)

    def _reason_to_skip(self, reference: Reference) -> str:
        if self._version is None:
            return self._why_missing(reference)
        if self._batch > 1:
            return "runs only if the batch is 1"
        if counts_values(self._steps.request.options):
            return "does not count values"
        missing = self._steps.request.target.missing_on(detect_host())
        return f"did not run: this host lacks {', '.join(sorted(missing))}" if missing else ""

    def _why_missing(self, reference: Reference) -> str:
        environment = reference.environment(self._steps.settings)
        if environment is not None:
            return f"is not installed in the environment of {environment.python}"
        hint = f" (OCTET_{reference.setting.upper()} is not set)" if reference.setting else ""
        return f"is not installed here{hint}"

    def _question(self) -> dict[str, Any]:
        # The key contains the media type of the file of expected outputs. The media type changes whenever the
        # generation of inputs changes, so outputs for older inputs are not used.
        return {
            "numerics": self._steps.request.numerics,
            "signature": self._signature.to_json(),
            "samples": self._samples,
            "batch": self._batch,
            "probes": self._probes,
            "vectors": Report.VECTORS,
        }
