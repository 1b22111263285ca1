"""What may change while a data plane runs alone: a process beside it reads files again, and says what has changed."""

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

Said = tuple[Members, bytes]


def keep_saying(standing: Callable[[], Iterable[Said]], said: Iterable[Said]) -> socket.socket:
    """Forks a process that says the orders again that change, and ends with whoever holds the channel to it.

    The data plane cannot read the files: a renewed one has another inode, and to see that it would need rights to the
    whole folder, which artifacts would have, too.

    Args:
        standing: the orders that hold now, one of a type.
        said: those that held until now.

    Returns:
        The channel, which the orders come from.
    """
    ours, theirs = socket.socketpair()
    if os.fork():
        ours.close()
        return theirs
    status = 1
    try:
        theirs.close()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)  # it is needed until the last request is answered
        _say(ours, standing, {order[0]["type"]: order for order in said})
        status = 0
    except OSError:  # the data plane has ended meanwhile
        pass
    finally:
        os._exit(status)


def _say(channel: socket.socket, standing: Callable[[], Iterable[Said]], said: dict[str, Said]) -> None:
    end = select.poll()
    end.register(channel, 0)
    while not end.poll(_EVERY_MS):
        try:
            orders = list(standing())
        except OctetError as error:  # a file that cannot be read now: what was said before holds
            _logger.error("%s", error.message)
            continue
        for order in orders:
            if said.get(order[0]["type"]) != order:
                channel.sendall(frame(*order))
                said[order[0]["type"]] = order
