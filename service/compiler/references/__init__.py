"""The source frameworks' own runtimes, as witnesses: where one is installed, a build is held to its answers too.

This module loads none of them; `answer` is for the child that runs the model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from numpy.typing import NDArray

from service.core.numerics import FBGEMM, LITERT_REFERENCE, ONEDNN, ONNXRUNTIME, PT2E, QNNPACK, TORCH_X86, XNNPACK

Array = NDArray[Any]
# (path of the source, numerics mode, inputs of each sample) -> outputs of each sample, in the file's order.
Answer = Callable[[str, str, Sequence[Sequence[Array]]], list[list[Array]]]


@dataclass(frozen=True)
class Reference:
    """A runtime that answers for a model of its framework.

    Attributes:
        title: as reports name it.
        package: the distribution that has to be installed.
        module: in this package; it has the function `answer`.
        kernels: numerics mode -> which kernels of the runtime define it.
    """

    title: str
    package: str
    module: str
    kernels: Mapping[str, str]

    @property
    def version(self) -> str | None:
        """The version installed here, if any."""
        try:
            return version(self.package)
        except PackageNotFoundError:
            return None

    @property
    def answer(self) -> Answer:
        answer: Answer = import_module(f"{__name__}.{self.module}").answer
        return answer


# By the format of the source.
REFERENCES: Mapping[str, Reference] = {
    "tflite": Reference(
        "LiteRT", "ai-edge-litert", "litert", {LITERT_REFERENCE: "BUILTIN_REF", XNNPACK: "default delegate"}
    ),
    "onnx": Reference(
        "ONNX Runtime", "onnxruntime", "onnxruntime", {ONNXRUNTIME: "CPU execution provider, int8 allowed"}
    ),
    "torchscript": Reference(
        "PyTorch",
        "torch",
        "torch",
        {FBGEMM: "engine fbgemm", ONEDNN: "engine onednn", TORCH_X86: "engine x86", QNNPACK: "engine qnnpack"},
    ),
    "pt2": Reference("PyTorch", "torch", "torch_exported", {PT2E: "the exported program in eager mode"}),
}


def reference_for(source_format: str, numerics: str) -> Reference | None:
    """Who defines `numerics` for files of `source_format`; None where no runtime does."""
    reference = REFERENCES.get(source_format)
    return reference if reference is not None and numerics in reference.kernels else None
