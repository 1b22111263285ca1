"""What clients may hold of this process, whoever they are."""

from __future__ import annotations

import resource

from service.core.settings import Settings
from service.native import PeerBudgets, PeerLimits

HEAD_BYTES = 64 << 10  # what a message may have beside its tensors
MAX_CALLS = 1000  # under way at a time: each holds a message before it is known which model's queue it belongs to
_BUFFERED_MESSAGES = 16  # of the largest, together
_LEAST_MESSAGE_BYTES = 256 << 20  # or a stream of many small ones would find no room
_MOST_CONNECTIONS = 100_000


def peer_budgets(settings: Settings) -> PeerBudgets:
    """For both protocols."""
    largest_bytes = settings.max_predict_bytes + HEAD_BYTES
    return PeerBudgets.of(
        PeerLimits(
            max_connections=settings.max_connections or _affordable_connections(),
            max_calls=MAX_CALLS,
            max_message_bytes=max(_LEAST_MESSAGE_BYTES, _BUFFERED_MESSAGES * largest_bytes),
            share=settings.peer_share,
        )
    )


def _affordable_connections() -> int:
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = descriptors == resource.RLIM_INFINITY
    return _MOST_CONNECTIONS if unlimited else min(_MOST_CONNECTIONS, descriptors * 3 // 4)
