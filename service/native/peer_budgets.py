"""What clients may hold and do, in one process: `src/peer_budget.h` for Python."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import tvm_ffi

from service.native.library import function


@dataclass(frozen=True)
class PeerLimits:
    """Of all clients together.

    Attributes:
        max_connections: at a time.
        max_calls: over gRPC, at a time; a call counts until nobody works on it and its answer was taken.
        max_message_bytes: of gRPC's messages that have come, or wait to be taken.
        share: of what others leave, that one address may have, and of that one connection; 1 for all of it.
    """

    max_connections: int = 10_000
    max_calls: int = 1000
    max_message_bytes: int = 1 << 30
    share: float = 0.75


@tvm_ffi.register_object("octet.Seat")
class Seat(tvm_ffi.Object):
    """The place of a connection among those that there may be, while Python has the connection: until `leave()`."""

    if TYPE_CHECKING:

        def leave(self) -> None: ...


@tvm_ffi.register_object("octet.PeerBudgets")
class PeerBudgets(tvm_ffi.Object):
    """For the fronts of a process, to be shared by them. `held()` are connections, calls and bytes of messages."""

    if TYPE_CHECKING:

        def held(self) -> tuple[int, int, int]: ...

    @staticmethod
    def of(limits: PeerLimits) -> PeerBudgets:
        """
        Raises:
            ValueError: the share is not in (0, 1].
        """
        budgets: PeerBudgets = function("peer_budgets")(
            limits.max_connections, limits.max_calls, limits.max_message_bytes, limits.share
        )
        return budgets
