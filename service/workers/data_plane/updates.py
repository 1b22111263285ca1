"""The helper process of a data plane that runs alone: it rereads the certificate and the keys, and sends changes."""

from __future__ import annotations

import logging
import os
import select
import signal
import socket
from collections.abc import Callable, Iterable

from service.core.errors import OctetError
from service.workers.data_plane.frames import frame
from service.workers.data_plane.orders import Members

_logger = logging.getLogger(__name__)
_EVERY_MS = 500

Order = tuple[Members, bytes]


def fork_updater(current_orders: Callable[[], Iterable[Order]], sent: Iterable[Order]) -> socket.socket:
    """Forks a process that sends an order again when the content of the order changes. The process ends when the other
    end of its channel closes.

    The data plane cannot read the files itself. A renewed file is a new file with another inode, so the data plane
    would need rights to the whole folder, and the code of artifacts would have these rights too.

    Args:
        current_orders: returns the current orders, one of each type.
        sent: the orders that the data plane already has.

    Returns:
        The channel from which the data plane receives the orders.
    """
    local, remote = socket.socketpair()
    if os.fork():
        local.close()
        return remote
    status = 1
    try:
        remote.close()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)  # this process is needed until the last request is answered
        _send_changes(local, current_orders, {order[0]["type"]: order for order in sent})
        status = 0
    except OSError:  # the data plane has ended
        pass
    finally:
        os._exit(status)


def _send_changes(
    channel: socket.socket, current_orders: Callable[[], Iterable[Order]], sent: dict[str, Order]
) -> None:
    end = select.poll()
    end.register(channel, 0)
    while not end.poll(_EVERY_MS):
        try:
            orders = list(current_orders())
        except OctetError as error:  # a file cannot be read at the moment, so the earlier orders stay valid
            _logger.error("%s", error.message)
            continue
        for order in orders:
            if sent.get(order[0]["type"]) != order:
                channel.sendall(frame(*order))
                sent[order[0]["type"]] = order
