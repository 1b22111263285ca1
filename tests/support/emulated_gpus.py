"""Runs the runtime on emulated GPUs, in child processes, with an artifact of `small_artifact`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from service.core.digest import canonical_json
from service.runtime.octet_library import NativeInstance, NativeModel
from tests.support.gpu_artifact import SIMPLE
from tests.support.small_artifact import address, tensor
from tools.cuda_emulator import emulated_driver


class Files(NamedTuple):
    """The files that are passed to child processes."""

    driver: Path
    kernels: Path
    library: Path
    constants: Path

    def run(self, function: Callable[..., Any], *arguments: Any, **settings: str) -> Any:
        """Calls `function(library, constants, *arguments)` in a child, with emulated GPUs according to `settings`."""
        environment = emulated_driver.environment(self.driver, self.kernels, **settings)
        return emulated_driver.in_a_child(function, self.library, self.constants, *arguments, environment=environment)


def load_model(config: Any, library: str, constants: str) -> NativeModel:
    """Loads an artifact whose config is `config`."""
    return NativeModel.load_files(canonical_json(config), Path(library), Path(constants))


def bind(instance: NativeInstance, value: int = 1) -> tuple[Any, Any]:
    """Binds an input of this value and an output, and returns both."""
    given, got = tensor(value), tensor()
    instance.bind([address(given)], [address(got)])
    return given, got


def attempt(function: Callable[[], Any]) -> str:
    """Calls the function, and returns the type and message of the exception that the function raises."""
    try:
        function()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def refusal(library: str, constants: str, config: Any = SIMPLE) -> str:
    """Returns why an artifact is not loaded."""
    return attempt(lambda: load_model(config, library, constants).instance())
