"""What an artifact is held to: the oracle's answers and the source framework's, asked for while it is being built."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from service.compiler.checking_roles import EXPECTED_FILE, REFERENCE_FILE
from service.compiler.references import Reference, reference_for
from service.compiler.steps import MODULE_FILE, Steps
from service.core.artifact import Report
from service.core.build import BuildCanceled
from service.core.errors import BuildFailed
from service.core.options import batch_of
from service.core.signature import ModelSignature
from service.core.target import detect_host

SAMPLES = 9  # three extremes, three random and three smooth inputs (`core.vectors`)
_SAMPLES_OF_BATCH = 4  # each holds as many inputs as the batch: two extremes, a random and a smooth one

Witness = tuple[str, Path]  # who says so, and the file of its answers
ORACLE = "the oracle: NumPy, int64"


@contextmanager
def answering(steps: Steps, signature: ModelSignature, source_format: str) -> Iterator[Callable[[], list[Witness]]]:
    """Asks the oracle, and the source model's own runtime where that is installed, in the background.

    Gives what waits for both and returns the files of their answers, the oracle's first. Their children end with the
    block.
    """
    abandoned = threading.Event()

    def poll() -> None:
        if abandoned.is_set():
            raise BuildCanceled

    asked = _Asked(steps, signature, source_format, poll)
    with ThreadPoolExecutor(2) as pool:
        oracle, witness = pool.submit(asked.oracle), pool.submit(asked.reference)
        try:
            yield lambda: [steps.awaited(oracle), *asked.witnesses(witness)]
        finally:
            abandoned.set()


class _Asked:
    def __init__(self, steps: Steps, signature: ModelSignature, source_format: str, poll: Callable[[], None]) -> None:
        self._steps, self._poll, self._format = steps, poll, source_format
        self._batch = batch_of(steps.request.options)
        self._request: dict[str, Any] = {
            "numerics": steps.request.numerics,
            "signature": signature.to_json(),
            "samples": SAMPLES if self._batch == 1 else _SAMPLES_OF_BATCH,
        }
        self._reference = reference_for(source_format, steps.request.numerics)

    def oracle(self) -> Witness:
        module = self._steps.output("import", MODULE_FILE)
        self._steps.ask(
            "oracle",
            {"module": str(module), "batch": self._batch, **self._request},
            readable=[module],
            question=self._question(),
            files=[EXPECTED_FILE],
            poll=self._poll,
        )
        return ORACLE, self._steps.output("oracle", EXPECTED_FILE)

    def reference(self) -> list[Witness]:
        steps, reference = self._steps, self._reference
        if self._batch > 1 or reference is None or reference.version is None:
            return []
        if steps.request.target.missing_on(detect_host()):
            return []
        kernels = reference.kernels[steps.request.numerics]
        steps.ask(
            "reference",
            {"source": str(steps.request.source), "format": self._format, **self._request},
            readable=[steps.request.source],
            question={**self._question(), "title": reference.title, "version": reference.version, "kernels": kernels},
            files=[REFERENCE_FILE],
            poll=self._poll,
        )
        return [(f"{reference.title} {reference.version}, {kernels}", steps.output("reference", REFERENCE_FILE))]

    def witnesses(self, answer: Future[list[Witness]]) -> list[Witness]:
        """The reference's answers, if it could give any; the log says why not."""
        reference: Reference | None = self._reference
        log, numerics = self._steps.progress.log, self._steps.request.numerics
        if self._batch > 1:
            log("verified against the oracle, sample by sample; other runtimes are asked where the batch is 1")
            return []
        if reference is None:
            log(f"no runtime defines {numerics} here: verified against the oracle only")
            return []
        if reference.version is None:
            log(f"{reference.title} is not installed here: verified against the oracle only")
        try:
            return self._steps.awaited(answer)
        except BuildFailed as error:
            log(f"{reference.title} could not run the model, so it is no witness: {error.message}")
            return []

    def _question(self) -> dict[str, Any]:
        # The media type of the answers changes with the inputs that they answer to.
        return {**self._request, "batch": self._batch, "vectors": Report.VECTORS}
