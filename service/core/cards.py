"""The cards of NVIDIA's that this process may use, as the driver says. It is asked in a child: whoever has started the
driver can use no card any more in the processes that it forks.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_DEVICES = (Path("/dev/nvidiactl"), Path("/dev/dxg"))  # Linux; Windows's subsystem for it
_FOLDERS = (
    *("/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib", "/lib64", "/lib/x86_64-linux-gnu"),
    *("/usr/local/nvidia/lib64", "/usr/local/cuda/compat", "/usr/lib/wsl/lib", "/run/opengl-driver/lib"),
)
LIBRARY = "libcuda.so.1"
_FOR_MODELS = 0.9
_ASKING_S = 60.0  # a driver that has slept initializes each card of a machine
# What says which of the cards a process sees, and where its driver is.
ENVIRONMENT = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "LD_LIBRARY_PATH")


@dataclass(frozen=True)
class Card:
    """A card.

    Attributes:
        capability: compute capability; 86 is 8.6.
    """

    name: str
    capability: int
    memory_bytes: int

    def runs(self, capability: int) -> bool:
        """Whether code for `capability` runs there: of the same major one, and of no higher minor one."""
        return self.capability // 10 == capability // 10 and self.capability >= capability


@dataclass(frozen=True)
class Cards:
    """What the driver shows this process.

    Attributes:
        cuda: the version of CUDA that the driver is of, as 12.4; empty where it was not found.
        problem: why there are none, although there is a driver or a card; else empty.
    """

    cards: tuple[Card, ...] = ()
    cuda: str = ""
    problem: str = ""


def usable_bytes(cards: Iterable[Card]) -> int:
    """What models may take of the memory of cards; the rest is for contexts, code and others."""
    return sum(int(card.memory_bytes * _FOR_MODELS) for card in cards)


@cache
def detect_cards() -> Cards:
    """Takes a second where there are some, and nothing where there is neither a driver nor a device."""
    if not any(path.exists() for path in _DEVICES) and driver_folder() is None:
        return Cards()
    import subprocess  # which runs no model

    command = [sys.executable, "-s", "-P", "-m", "service.runtime.cards"]
    path = os.pathsep.join(path for path in sys.path if path)
    try:
        child = subprocess.run(
            command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, timeout=_ASKING_S
        )
        said = json.loads(child.stdout)
        cards = tuple(Card(each["name"], each["capability"], each["memory_bytes"]) for each in said["cards"])
        return Cards(cards, said["cuda"], said["problem"])
    except (OSError, subprocess.SubprocessError):
        return Cards(problem="NVIDIA's driver gave no answer")
    except (ValueError, LookupError, TypeError):
        return Cards(problem=f"NVIDIA's driver ended the process that asked it (status {child.returncode})")


def driver_folder() -> Path | None:
    """Where the driver's library is, of the places in which it is usual."""
    named = os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)
    return next((Path(each) for each in (*named, *_FOLDERS) if each and Path(each, LIBRARY).exists()), None)
