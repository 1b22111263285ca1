"""The source frameworks' own runtimes, as witnesses: where one is installed, a build is compared with its answers too.

This module loads none of them; `Reference.open` is for the child that runs the model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version

from service.core.arrays import Array
from service.core.numerics import FBGEMM, LITERT_REFERENCE, ONEDNN, ONNXRUNTIME, PT2E, QNNPACK, TORCH_X86, XNNPACK
from service.core.witnesses import Witness

# The inputs of a sample -> its outputs, in the file's order.
Answer = Callable[[Sequence[Array]], list[Array]]


@dataclass(frozen=True)
class Session:
    """A way to run a model in its runtime.

    Attributes:
        options: what is set, by the runtime's own names; everything else is as the runtime has it by default.
        note: what this session shows, if it is not the one that defines the mode.
    """

    options: Mapping[str, str]
    note: str = ""


@dataclass(frozen=True)
class Reference:
    """A runtime that answers for a model of its framework.

    Attributes:
        name: as reports name it.
        package: the distribution that has to be installed.
        module: in this package; it has the function `open_session`.
        sessions: numerics mode -> the session that defines it, and others whose answers are reported beside it.
    """

    name: str
    package: str
    module: str
    sessions: Mapping[str, Sequence[Session]]

    @property
    def version(self) -> str | None:
        """The version installed here, if any."""
        try:
            return version(self.package)
        except PackageNotFoundError:
            return None

    def witnesses(self, numerics: str) -> list[Witness]:
        """The sessions of a mode, the one that defines it first."""
        sessions = self.sessions[numerics]
        return [Witness(self.name, self.version, session.options, session.note) for session in sessions]

    def open(self, source: str, session: Session) -> Answer:
        """Loads the model in `source`."""
        answer: Answer = import_module(f"{__name__}.{self.module}").open_session(source, session.options)
        return answer


_LITERT_KERNELS = "experimental_op_resolver_type"
_ORT_INT8, _ORT_LEVEL = "session.qdqisint8allowed", "graph_optimization_level"
_TORCH_ENGINE = "torch.backends.quantized.engine"

# By the format of the source.
REFERENCES: Mapping[str, Reference] = {
    "tflite": Reference(
        "LiteRT",
        "ai-edge-litert",
        "litert",
        {
            LITERT_REFERENCE: (
                Session({_LITERT_KERNELS: "BUILTIN_REF"}),
                Session({_LITERT_KERNELS: "AUTO"}, "the default delegate"),
            ),
            # Not beside its reference kernels: they take minutes where the delegate takes a second.
            XNNPACK: (Session({_LITERT_KERNELS: "AUTO"}),),
        },
    ),
    "onnx": Reference(
        "ONNX Runtime",
        "onnxruntime",
        "onnxruntime",
        {
            # Without the option, and on x86-64, it makes uint8 of int8, and leaves in float32 what it then cannot
            # match any more. Its optimizations are what makes quantized operators of float ones between conversions.
            ONNXRUNTIME: (
                Session({_ORT_INT8: "1", _ORT_LEVEL: "ORT_ENABLE_ALL"}),
                Session({}, "a default session"),
                Session({_ORT_INT8: "1", _ORT_LEVEL: "ORT_DISABLE_ALL"}, "without graph optimizations"),
            )
        },
    ),
    "torchscript": Reference(
        "PyTorch",
        "torch",
        "torch",
        {
            mode: (Session({_TORCH_ENGINE: engine}),)
            for mode, engine in ((FBGEMM, "fbgemm"), (ONEDNN, "onednn"), (TORCH_X86, "x86"), (QNNPACK, "qnnpack"))
        },
    ),
    "pt2": Reference("PyTorch", "torch", "torch_exported", {PT2E: (Session({"execution": "eager"}),)}),
}


def reference_for(source_format: str, numerics: str) -> Reference | None:
    """The runtime that defines `numerics` for files of `source_format`; None where none can be asked."""
    reference = REFERENCES.get(source_format)
    return reference if reference is not None and numerics in reference.sessions else None
