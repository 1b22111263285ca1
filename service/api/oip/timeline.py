"""The times of the steps of one predict request: noted as it runs, evaluated after it was answered."""

from __future__ import annotations

from time import monotonic

from service.workers.inference import Stages


class Timeline:
    """Times are those of `time.monotonic`, in seconds; 0 for what has not happened.

    Attributes:
        began_s: its head was there.
        arrived_s: the last byte arrived; if it never did, as `began_s`.
        prepared_s: its inputs were parsed and decoded.
        ran_s: the outputs were there.
        ended_s: they were written as an answer, or it was refused.
        stages: what lay between `prepared_s` and `ran_s`; None where nothing was computed.
        code: of the answer, by the protocol.
    """

    __slots__ = ("arrived_s", "began_s", "code", "ended_s", "prepared_s", "ran_s", "stages")

    def __init__(self, unforeseen: int | str) -> None:
        """Starts the timeline of a request; `unforeseen` is its code until the outcome is known."""
        self.began_s = self.arrived_s = monotonic()
        self.prepared_s = self.ran_s = self.ended_s = 0.0
        self.stages: Stages | None = None
        self.code = unforeseen

    def end(self, code: int | str) -> None:
        """Its answer is written."""
        self.code, self.ended_s = code, monotonic()

    @property
    def input_s(self) -> float | None:
        """The duration of reading the request; None where reading was not completed."""
        return self.prepared_s - self.arrived_s if self.prepared_s else None

    @property
    def output_s(self) -> float | None:
        """The duration of writing the answer; None where nothing was computed."""
        return self.ended_s - self.ran_s if self.ran_s and self.ended_s else None

    @property
    def total_s(self) -> float:
        """From its last byte to its answer, or until now."""
        return (self.ended_s or monotonic()) - self.arrived_s

    def server_timing(self) -> bytes:
        """The value of `Server-Timing` (https://www.w3.org/TR/server-timing), whose durations are milliseconds."""
        assert self.stages is not None  # it was answered
        return b"queue;dur=%.3f, batch;dur=%.3f, infer;dur=%.3f, total;dur=%.3f" % (
            1e3 * self.stages.queued_s,
            1e3 * self.stages.batched_s,
            1e3 * self.stages.run_s,
            1e3 * self.total_s,
        )
