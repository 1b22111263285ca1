"""What a child that runs kernels on NVIDIA's cards may do besides: the driver works in its process, and reaches the
kernel through devices.

By what is public of the driver (the sources of its kernel modules, and its own documentation), and by what one called
(580.159 with an H200, by strace, outside of this sandbox).
Whoever may use a card is as little locked in as its driver is sound, so only roles that run such an artifact may.
"""

from __future__ import annotations

import os
import socket
from dataclasses import replace
from pathlib import Path

from service.compiler.sandbox.landlock import READ, USE_DEVICE, Right
from service.compiler.sandbox.policy import UNLIMITED_BYTES, Limits, Rules
from service.core.cards import ENVIRONMENT, driver_folder

_DEVICES = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-caps", "/dev/dxg")
_FACTS = (
    *("/proc/driver/nvidia", "/proc/driver/nvidia-caps", "/proc/devices", "/proc/modules", "/proc/sys/vm"),
    *("/sys/bus/pci", "/sys/devices", "/sys/module", "/usr/share/nvidia"),
)
_OPEN_FILES = 4096  # the driver opens a device anew for much of what it maps

CALLS = (
    *("eventfd2", "pipe2", "mincore", "mlock", "mlock2", "munlock", "get_mempolicy", "set_mempolicy", "mbind"),
    *("memfd_create", "bind", "listen"),
)
# When it begins it listens at an abstract socket, by which processes that share memory would find it, and asks whether
# a server (MPS) listens at one of its own: here nobody does.
SOCKET = socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC
# Commands of the control device are of type F (NV_IOCTL_MAGIC, nv-ioctl-numbers.h), which is the second byte; those of
# unified memory are plain numbers (uvm_ioctl.h, uvm_linux_ioctl.h). Landlock says of which devices.
IOCTL_TYPE, IOCTL_TYPE_MASK = 0x4600, 0xFF00
UVM_IOCTLS = (0x3000_0001, 0x3000_0002)
UVM_IOCTLS_BELOW = 0x100


def rules() -> Rules:
    """Landlock rules for the devices and what the driver reads, as far as they are there."""
    cards = sorted(path for path in Path("/dev").glob("nvidia[0-9]*"))
    devices = [path for path in (*map(Path, _DEVICES), *cards) if path.exists()]
    folder = driver_folder()
    readable = [path for path in map(Path, _FACTS) if path.exists()] + ([folder] if folder else [])
    use = USE_DEVICE | Right.IOCTL_DEV
    return [(path, READ) for path in readable] + [(path, use | READ if path.is_dir() else use) for path in devices]


def environment() -> dict[str, str]:
    """Where the driver is, and which cards it is to show; and no cache of compiled code in a home."""
    return {name: os.environ[name] for name in ENVIRONMENT if name in os.environ} | {"CUDA_CACHE_DISABLE": "1"}


def with_cards(limits: Limits) -> Limits:
    """The driver reserves addresses for all memory of the machine and its cards."""
    return replace(limits, cards=True, memory_bytes=UNLIMITED_BYTES, open_files=max(limits.open_files, _OPEN_FILES))
