"""What a request asks of a model's queue."""

from __future__ import annotations

from dataclasses import dataclass


class Abandoned(Exception):
    """Nobody waits for the answer any more."""


@dataclass(frozen=True)
class Step:
    """A request's place in a sequence, by the protocol's parameters.

    Attributes:
        id: `sequence_id`, which the client chose.
        starts: whether the sequence begins with it, anew if it is under way.
        ends: whether nothing comes after it.
    """

    id: int | str
    starts: bool = False
    ends: bool = False


@dataclass(frozen=True)
class Terms:
    """What a request asks of the queue.

    Attributes:
        priority: 1 is served first; 0 for the level in the middle.
        timeout_s: within which its call has to begin, after its admission.
        step: of a model that keeps state, where it belongs; other models do not look at it.
    """

    priority: int = 0
    timeout_s: float | None = None
    step: Step | None = None


USUAL = Terms()
