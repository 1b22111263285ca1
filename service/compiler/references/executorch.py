"""Runs ExecuTorch's programs in ExecuTorch. This module is loaded in the environment of ExecuTorch, which has neither
TVM nor this project's other requirements.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from service.compiler.references import Answer
from service.core.models.arrays import Array


def open_session(source: str, options: Mapping[str, str]) -> Answer:
    """Loads the method of the program `source` that Octet compiles.

    Args:
        options: none are known.
    """
    import torch  # type: ignore[import-not-found]
    from executorch.runtime import Runtime  # type: ignore[import-not-found]

    torch.set_num_threads(1)
    data = Path(source).read_bytes()
    program = Runtime.get().load_program(data)
    name = "forward" if "forward" in program.method_names else next(iter(program.method_names))
    # the method reads the program and its bytes, which must exist as long as it does
    loaded: list[Any] = [data, program, program.load_method(name)]

    def answer(sample: Sequence[Array]) -> list[Array]:
        results = loaded[-1].execute([torch.from_numpy(value.copy()) for value in sample])
        return [each.clone().numpy() for each in results]

    return answer
