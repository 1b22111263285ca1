"""The scheduling rules of a model: how its requests are queued, batched and run, according to the settings."""

from __future__ import annotations

from dataclasses import dataclass

from service.core.models.serving import Serving
from service.core.system.cores import affordable_threads
from service.core.target import Device

# The defaults if the setting `instances` is 0:
_MOST_INSTANCES = 8  # the limit on the CPU, where each instance has a thread for every core
_CARD_INSTANCES = 2  # the instances on a GPU


@dataclass(frozen=True)
class Scheduling:
    """The scheduling rules of one model.

    Attributes:
        queue_size: the number of requests that may wait while every instance is busy.
        max_wait_s: a request is refused if, by the duration of recent calls, it would wait longer than this; None for
            no limit.
        instances: the number of calls of the model that may run on the CPU at the same time.
        card_instances: like `instances`, but on a GPU. While one instance computes, tensors of another are copied.
        threads: the number of threads that share a call if no other call needs their cores; 0 for all cores that this
            process may use.
        priority_levels: the number of priority levels; level 1 is served first.
        call_limit_s: the least time after which a call counts as hung; 0 for never.
        timeout_s: how long a request without a deadline may wait; None for ever.
        max_batch: the most samples of different requests that are computed in one call; 0 for the largest size built.
        max_delay_s: how long a call waits for more requests to combine.
        max_sequences: the most sequences of a model with state that may exist at a time.
        sequence_idle_s: a sequence without requests for this long ends.
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
    """Returns the scheduling rules that follow from a model's settings."""
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
