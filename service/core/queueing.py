"""How the requests to one model are queued, brought together and run: what a deployment chooses."""

from __future__ import annotations

from dataclasses import dataclass

from service.core.cores import affordable_threads
from service.core.settings import Serving
from service.core.target import Device

# Unless told otherwise:
_MOST_INSTANCES = 8  # each has a thread for every core
_CARD_INSTANCES = 2


@dataclass(frozen=True)
class Scheduling:
    """The rules of one model's queue.

    Attributes:
        queue_size: how many requests may wait while every instance is busy.
        max_wait_s: fewer may wait where these will take longer, as far as the last calls tell; None for any time.
        instances: how many calls of the model may run at the same time.
        card_instances: and of one for a card: while one computes, tensors of another are copied.
        threads: that share a call, where no other call wants their cores; 0 for all that this process may use.
        priority_levels: the number of levels; 1 is served first.
        call_limit_s: the least time after which a call counts as hung; 0 for never.
        timeout_s: how long a request may wait that says nothing of it itself; None for ever.
        max_batch: samples of different requests that are computed in one call, at most; 0 for the largest size built.
        max_delay_s: how long a call waits for requests that may join it.
        max_sequences: of a model that keeps state, how many sequences may be under way.
        sequence_idle_s: how long one is kept that nobody asks for.
    """

    queue_size: int = 64
    max_wait_s: float | None = None
    instances: int = 1
    card_instances: int = 2
    threads: int = 0
    priority_levels: int = 3
    call_limit_s: float = 0.0
    timeout_s: float | None = None
    max_batch: int = 0
    max_delay_s: float = 0.0
    max_sequences: int = 128
    sequence_idle_s: float = 60.0

    def instances_on(self, device: Device) -> int:
        return self.instances if device == "cpu" else self.card_instances


def scheduling_of(chosen: Serving) -> Scheduling:
    """The rules that settings have chosen for a model."""
    return Scheduling(
        queue_size=chosen.queue_size,
        max_wait_s=chosen.queue_wait_s,
        instances=chosen.instances or min(affordable_threads(), _MOST_INSTANCES),
        card_instances=chosen.instances or _CARD_INSTANCES,
        threads=chosen.threads,
        priority_levels=chosen.priority_levels,
        call_limit_s=chosen.call_limit_s,
        timeout_s=chosen.predict_timeout_s,
        max_batch=chosen.max_batch,
        max_delay_s=chosen.max_delay_s,
        max_sequences=chosen.max_sequences,
        sequence_idle_s=chosen.sequence_idle_s,
    )
