"""Additional rights of a child that runs kernels on an NVIDIA GPU.

The user-space driver runs in the child's process and communicates with the kernel through device files. The list of
rights is based on the public sources of the driver's kernel modules, on its documentation, and on the system calls that
driver 580.159 made with an H200 outside of this sandbox (recorded with strace). A bug in the driver could let a child
with these rights escape, so only roles that run a GPU artifact have them.
"""

from __future__ import annotations

import os
import socket
from dataclasses import replace
from pathlib import Path

from service.compiler.sandbox.landlock import READ, USE_DEVICE, Right
from service.compiler.sandbox.policy import UNLIMITED_BYTES, Limits, Rules
from service.core.system.gpus import ENVIRONMENT, driver_folder

_DEVICES = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-caps", "/dev/dxg")
_FACTS = (
    *("/proc/driver/nvidia", "/proc/driver/nvidia-caps", "/proc/devices", "/proc/modules", "/proc/sys/vm"),
    *("/sys/bus/pci", "/sys/devices", "/sys/module", "/usr/share/nvidia"),
)
_OPEN_FILES = 4096  # the driver opens a device again for many of its mappings

CALLS = (
    *("eventfd2", "pipe2", "mincore", "mlock", "mlock2", "munlock", "get_mempolicy", "set_mempolicy", "mbind"),
    *("memfd_create", "bind", "listen"),
)
# When it starts, the driver listens on an abstract socket, by which processes that share memory can find it. The driver
# also checks whether an MPS server is listening on the server's socket. Neither of these sockets is needed here.
SOCKET = socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC
# The ioctls of the control device have type F (NV_IOCTL_MAGIC, nv-ioctl-numbers.h), which is the second byte. The
# ioctls of unified memory are plain numbers (uvm_ioctl.h, uvm_linux_ioctl.h). Landlock restricts which devices can be
# opened.
IOCTL_TYPE, IOCTL_TYPE_MASK = 0x4600, 0xFF00
UVM_IOCTLS = (0x3000_0001, 0x3000_0002)
UVM_IOCTLS_BELOW = 0x100


def rules() -> Rules:
    """Returns Landlock rules for the device files and the files that the driver reads, if they exist."""
    gpus = sorted(path for path in Path("/dev").glob("nvidia[0-9]*"))
    devices = [path for path in (*map(Path, _DEVICES), *gpus) if path.exists()]
    folder = driver_folder()
    readable = [path for path in map(Path, _FACTS) if path.exists()] + ([folder] if folder else [])
    use = USE_DEVICE | Right.IOCTL_DEV
    return [(path, READ) for path in readable] + [(path, use | READ if path.is_dir() else use) for path in devices]


def environment() -> dict[str, str]:
    """Returns variables that select the driver and the visible GPUs, and that disable the cache of compiled code."""
    return {name: os.environ[name] for name in ENVIRONMENT if name in os.environ} | {"CUDA_CACHE_DISABLE": "1"}


def with_gpus(limits: Limits) -> Limits:
    """Returns `limits` with GPU access and no address space limit.

    The driver reserves address space for all memory of the machine and its GPUs.
    """
    return replace(limits, cards=True, memory_bytes=UNLIMITED_BYTES, open_files=max(limits.open_files, _OPEN_FILES))
