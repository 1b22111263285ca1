"""liboctet_runtime in Python: the functions of `service/native/runtime/octet.h`, which documents them.

Tensors are addresses here, of memory that is 64-byte aligned, C-ordered, and kept alive by the caller.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cache, cached_property
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from service.core.errors import CorruptBlob, InvalidTensor, OctetError, Unsupported
from service.core.models.signature import DATATYPES
from service.core.system.installed import require_glibc
from service.runtime.python_library import functions_of

_PATH = Path(__file__).parents[1] / "native" / "liboctet_runtime.so"

Handle = ctypes.c_void_p
_int, _long, _size, _text, _double = ctypes.c_int32, ctypes.c_int64, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_double
_addresses = ctypes.POINTER(ctypes.c_void_p)


class Role(IntEnum):
    INPUT = 0
    OUTPUT = 1
    STATE = 2


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("name", _text),
        ("datatype", _text),
        ("rank", _int),
        ("shape", ctypes.POINTER(_long)),
        ("bytes", _long),
        ("is_quantized", _int),
        ("scale", _double),
        ("zero_point", _long),
    )


@dataclass(frozen=True)
class Tensor:
    """An input, output or state, like the C struct `octet_tensor`; `quantization` is scale and zero point."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    size_bytes: int
    quantization: tuple[float, int] | None


class _Card(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char * 128),
        ("capability", _int),
        ("memory_bytes", _long),
        ("used_bytes", _long),
    )


@dataclass(frozen=True)
class Gpu:
    """An NVIDIA GPU, like the C struct `octet_card`; `capability` is 86 for 8.6."""

    name: str
    capability: int
    memory_bytes: int
    used_bytes: int


# The result type and the argument types of each function.
_STATUS = ctypes.c_int
_FUNCTIONS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "error": (_text, ()),
    "load": (_STATUS, (_text, ctypes.POINTER(Handle))),
    "load_files": (_STATUS, (_text, _size, _text, _text, ctypes.POINTER(Handle))),
    "load_memory": (_STATUS, (_text, _size, _text, _size, Handle, _size, ctypes.POINTER(Handle))),
    "unload": (None, (Handle,)),
    "count": (_int, (Handle, _int)),
    "describe": (_STATUS, (Handle, _int, _int, ctypes.POINTER(_Tensor))),
    "arena_bytes": (_long, (Handle,)),
    "constant_bytes": (_long, (Handle,)),
    "longest": (_long, (Handle,)),
    "calls": (_int, (Handle,)),
    "call_symbol": (_text, (Handle, _int)),
    "instance_new": (_STATUS, (Handle, Handle, _int, ctypes.POINTER(Handle))),
    "instance_share": (Handle, (Handle,)),
    "instance_free": (None, (Handle,)),
    "bind": (_STATUS, (Handle, _addresses, _addresses)),
    "bind_states": (_STATUS, (Handle, _addresses, _addresses)),
    "set_length": (_STATUS, (Handle, _int)),
    "reset": (_STATUS, (Handle,)),
    "initial_state": (_STATUS, (Handle, _int, Handle)),
    "run": (_STATUS, (Handle,)),
    "run_timed": (_STATUS, (Handle, ctypes.POINTER(_double))),
    "run_resident": (_STATUS, (Handle, _int, ctypes.POINTER(_double))),
    "mark": (None, (Handle, Handle)),
    "cards": (_STATUS, (ctypes.POINTER(_int), ctypes.POINTER(_int))),
    "card_describe": (_STATUS, (_int, ctypes.POINTER(_Card))),
    "card_free_bytes": (_STATUS, (_int, ctypes.POINTER(_long))),
    "is_for_card": (_int, (Handle,)),
    "is_lost": (_int, (Handle,)),
    "symbol": (Handle, (Handle, _text)),
    "call": (_STATUS, (Handle, _int, Handle, _addresses)),
    "team_default": (Handle, ()),
    "team_new": (Handle, (*[ctypes.POINTER(_int)] * 3, _int, _int, _double)),
    "team_free": (None, (Handle,)),
    "team_enter": (None, (Handle, _int)),
    "team_leave": (None, (Handle,)),
    "team_cores": (_int, (Handle,)),
    "team_free_cores": (_int, (Handle,)),
    "team_waiting": (_int, (Handle,)),
}

_ERRORS: dict[int, type[Exception]] = {
    1: InvalidTensor,
    2: CorruptBlob,
    3: Unsupported,
    4: OSError,
    5: OctetError,
    6: MemoryError,
}


class _Library:
    """The functions by their names in the header, without `octet_`. These functions release the GIL."""

    def __init__(self) -> None:
        if not _PATH.is_file():
            raise Unsupported(f"{_PATH.name} was not built", hint="run make setup or pip install to build it")
        require_glibc()
        library = ctypes.CDLL(str(_PATH))
        for name, (result, arguments) in _FUNCTIONS.items():
            function = library[f"octet_{name}"]
            function.restype, function.argtypes = result, arguments
            setattr(self, name, function)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        raise AttributeError(name)  # only called for names that `__init__` has not set


@cache
def library() -> _Library:
    """Loads the library once. Raises `Unsupported` if it was not built."""
    return _Library()


def check(status: int, text: bytes | None = None) -> None:
    """Raises the exception for an `octet_status` other than 0. Its message is `text`, or else that of `octet_error`."""
    if status:
        raise _ERRORS[status]((text or library().error() or b"").decode("utf-8", "replace"))


def cards() -> tuple[list[Gpu], int]:
    """Returns the GPUs that the driver shows this process, and its CUDA version: 12040 is 12.4.

    Starts the driver: children that this process forks afterwards cannot use GPUs.

    Raises:
        Unsupported: this process can use no GPU; the message explains why.
    """
    count, version = _int(), _int()
    check(library().cards(ctypes.byref(count), ctypes.byref(version)))
    found = []
    for index in range(count.value):
        gpu = _Card()
        check(library().card_describe(index, ctypes.byref(gpu)))
        found.append(Gpu(gpu.name.decode("utf-8", "replace"), gpu.capability, gpu.memory_bytes, gpu.used_bytes))
    return found, version.value


def card_free_bytes(index: int) -> int:
    """Returns the memory of a GPU that no process uses. The call takes a second, and itself uses some of the GPU's
    memory.
    """
    found = _long()
    check(library().card_free_bytes(index, ctypes.byref(found)))
    return found.value


def _array(addresses: Sequence[int] | None) -> Any:
    return None if addresses is None else (ctypes.c_void_p * len(addresses))(*addresses)


class _Owner:
    """Owns the object that a handle refers to, until `close` or until this Python object is garbage-collected."""

    def __init__(self, handle: Handle, free: Callable[..., Any]) -> None:
        self.handle = handle
        self._finalizer = weakref.finalize(self, free, Handle(handle.value))

    def close(self) -> None:
        """Frees everything at once. The object cannot be used any more."""
        self.handle = Handle()  # NULL, which no function accepts
        self._finalizer()

    @property
    def is_closed(self) -> bool:
        return not self._finalizer.alive


class NativeTeam(_Owner):
    """Threads and cores that calls share."""

    @staticmethod
    def of(processors: Sequence[tuple[int, int, int]], budget: int = 0, window_s: float = 0.1) -> NativeTeam:
        """Creates a team.

        Args:
            processors: by their numbers in the kernel, with the core and the last-level cache that each belongs to.
            budget: the number of cores that compute at the same time; 0: all.
            window_s: calls that follow each other within this time count as concurrent.
        """
        columns = [(_int * len(processors))(*column) for column in zip(*processors, strict=True)]
        handle = Handle(library().team_new(*columns, len(processors), budget, window_s))
        if not handle:
            check(1)
        return NativeTeam(handle, library().team_free)

    @staticmethod
    @cache
    def of_this_process() -> NativeTeam:
        return NativeTeam(Handle(library().team_default()), lambda _: None)

    @property
    def cores(self) -> int:
        return int(library().team_cores(self.handle))

    @property
    def free_cores(self) -> int:
        return int(library().team_free_cores(self.handle))

    @property
    def waiting(self) -> int:
        return int(library().team_waiting(self.handle))

    def enter(self, threads: int) -> None:
        library().team_enter(self.handle, threads)

    def leave(self) -> None:
        library().team_leave(self.handle)

    def call(self, threads: int, function: int, operands: Sequence[int]) -> None:
        """Calls a function of a model at the address from `NativeModel.symbol`, under a lease of cores."""
        check(library().call(self.handle, threads, function, _array(operands)))


class NativeModel(_Owner):
    """Code, constants and a checked plan. After `close`, the model is freed when its instances are closed, too."""

    def __init__(self, handle: Handle) -> None:
        super().__init__(handle, library().unload)

    @staticmethod
    def load(folder: Path) -> NativeModel:
        handle = Handle()
        check(library().load(str(folder).encode(), ctypes.byref(handle)))
        return NativeModel(handle)

    @staticmethod
    def load_files(config: bytes, code: Path, constants: Path) -> NativeModel:
        handle, paths = Handle(), [str(path).encode() for path in (code, constants)]
        check(library().load_files(config, len(config), *paths, ctypes.byref(handle)))
        return NativeModel(handle)

    @staticmethod
    def load_memory(config: bytes, code: bytes, constants: int, constants_bytes: int) -> NativeModel:
        """Loads a model from memory. `constants` is an address, whose memory the caller keeps alive."""
        handle = Handle()
        check(
            library().load_memory(
                config, len(config), code, len(code), constants, constants_bytes, ctypes.byref(handle)
            )
        )
        return NativeModel(handle)

    def tensors(self, role: Role) -> list[Tensor]:
        found = []
        for index in range(library().count(self.handle, role)):
            tensor = _Tensor()
            check(library().describe(self.handle, role, index, ctypes.byref(tensor)))
            quantization = (tensor.scale, tensor.zero_point) if tensor.is_quantized else None
            shape = tuple(tensor.shape[: tensor.rank])
            found.append(Tensor(tensor.name.decode(), tensor.datatype.decode(), shape, tensor.bytes, quantization))
        return found

    def dtypes(self, role: Role) -> list[np.dtype[Any]]:
        return [np.dtype(DATATYPES[tensor.datatype]) for tensor in self.tensors(role)]

    @cached_property
    def calls(self) -> tuple[str, ...]:
        """The symbols of the kernel calls of a run, in order."""
        count = library().calls(self.handle)
        return tuple(library().call_symbol(self.handle, call).decode() for call in range(count))

    @property
    def arena_bytes(self) -> int:
        return int(library().arena_bytes(self.handle))

    @property
    def constant_bytes(self) -> int:
        return int(library().constant_bytes(self.handle))

    @property
    def longest(self) -> int:
        """The greatest length of the inputs; 0 if the model has inputs of one length only."""
        return int(library().longest(self.handle))

    @property
    def is_lost(self) -> bool:
        """True if a GPU that the model was loaded to has failed. Only another process can use that GPU again."""
        return bool(library().is_lost(self.handle))

    def symbol(self, name: str) -> int | None:
        """Returns the address of a function, valid until the model is closed; None if the function does not exist."""
        address: int | None = library().symbol(self.handle, name.encode())
        return address

    def initial_state(self, index: int, memory: int) -> None:
        check(library().initial_state(self.handle, index, memory))

    def instance(self, team: NativeTeam | None = None, threads: int = 0) -> NativeInstance:
        """Creates an instance.

        Args:
            team: by default that of the process.
            threads: the maximum for one run; 0: as many as the team has cores.
        """
        return NativeInstance(self, team or NativeTeam.of_this_process(), threads)


class NativeInstance(_Owner):
    """An arena, and the tensors that are bound to it. It computes one run at a time, from any thread.

    Attributes:
        call: `call(*arrays)` binds the arrays, runs, and returns the outputs in memory of their own. `call` returns
            None if an input is not exactly an array of the signature's dtype and shape, in C order. An input that is
            not aligned is copied.
        run: `run()` computes with the bound tensors.
    """

    def __init__(self, model: NativeModel, team: NativeTeam, threads: int) -> None:
        handle = Handle()
        check(library().instance_new(model.handle, team.handle, threads, ctypes.byref(handle)))
        super().__init__(handle, library().instance_free)
        self._calls, self._team = len(model.calls), team  # the team outlives the instance
        inputs, outputs = (model.dtypes(role) for role in (Role.INPUT, Role.OUTPUT))
        self.call, self.run = functions_of(model.handle, handle, inputs, outputs, check)

    def close(self) -> None:
        super().close()
        self.call = self.run = self._refuse  # the earlier functions refer to the freed instance

    def _refuse(self, *_: object) -> NoReturn:
        raise InvalidTensor("the instance was closed")

    def bind(self, inputs: Sequence[int], outputs: Sequence[int]) -> None:
        check(library().bind(self.handle, _array(inputs), _array(outputs)))

    def bind_states(self, before: Sequence[int] | None, after: Sequence[int] | None) -> None:
        """Binds states that the caller keeps. With None and None, the instance keeps them."""
        check(library().bind_states(self.handle, _array(before), _array(after)))

    def set_length(self, length: int) -> None:
        check(library().set_length(self.handle, length))

    def reset(self) -> None:
        check(library().reset(self.handle))

    def run_timed(self) -> list[float]:
        """Runs once, and returns the time of each kernel call in seconds."""
        seconds = (_double * self._calls)()
        check(library().run_timed(self.handle, seconds))
        return list(seconds)

    def run_resident(self, runs: int) -> float:
        """Returns the time of a run on a GPU in seconds, without copies of tensors: the average of `runs` consecutive
        runs.
        """
        seconds = _double()
        check(library().run_resident(self.handle, runs, ctypes.byref(seconds)))
        return seconds.value

    def mark(self, address: int | None) -> None:
        """Makes the runtime set the byte at `address` to 1 while compiled code runs. The byte must outlive this
        instance.
        """
        library().mark(self.handle, address)
