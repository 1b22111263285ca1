"""The source frameworks' own runtimes. If such a runtime is installed, each build also compares the artifact's outputs
with those of the runtime.

This module does not load them. Only the child that runs the model calls `Reference.open`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from service.compiler.references.environment import Environment
from service.core.builds.numerics import (
    EXECUTORCH,
    FBGEMM,
    LITERT_REFERENCE,
    MXNET_ONEDNN,
    ONEDNN,
    ONNXRUNTIME,
    OPENVINO,
    PT2E,
    QNNPACK,
    TORCH_X86,
    XNNPACK,
)
from service.core.models.arrays import Array
from service.core.verification.witnesses import Witness

# A function that runs a model on one sample. Inputs and outputs are in the order of the model file.
Answer = Callable[[Sequence[Array]], list[Array]]


@dataclass(frozen=True)
class Session:
    """One way to run a model in its framework's runtime.

    Attributes:
        options: settings by the runtime's names for them. Other settings keep the runtime's defaults.
        note: a description of the session; empty for the session that defines the mode.
    """

    options: Mapping[str, str]
    note: str = ""


@dataclass(frozen=True)
class Reference:
    """A runtime that can run models of its framework.

    Attributes:
        name: the name in reports.
        package: the distribution that must be installed.
        module: the module of this package that has the function `open_session`.
        sessions: maps each numerics mode to the session that defines it, followed by sessions whose results are only
            reported.
        setting: the setting that names the interpreter of another environment, in which the runtime then runs. Empty if
            the runtime can only run in Octet's environment.
    """

    name: str
    package: str
    module: str
    sessions: Mapping[str, Sequence[Session]]
    setting: str = ""

    def environment(self, settings: object) -> Environment | None:
        """Returns the environment that the setting names, or None for Octet's."""
        python: Path | None = getattr(settings, self.setting) if self.setting else None
        return None if python is None else Environment(python)

    def version(self, settings: object = None) -> str | None:
        """Returns the installed version, or None. Without `settings`, the one in Octet's environment."""
        environment = None if settings is None else self.environment(settings)
        if environment is not None:
            return environment.version(self.package)
        try:
            return version(self.package)
        except PackageNotFoundError:
            return None

    def witnesses(self, numerics: str, installed: str | None) -> list[Witness]:
        """Returns one witness for each session of the mode. The first session is the one that defines the mode."""
        sessions = self.sessions[numerics]
        return [Witness(self.name, installed, session.options, session.note) for session in sessions]

    def open(self, source: str, session: Session) -> Answer:
        """Loads the model in the file `source`, and returns a function that runs it."""
        answer: Answer = import_module(f"{__name__}.{self.module}").open_session(source, session.options)
        return answer


_LITERT_KERNELS = "experimental_op_resolver_type"
_ORT_INT8, _ORT_LEVEL = "session.qdqisint8allowed", "graph_optimization_level"
_TORCH_ENGINE = "torch.backends.quantized.engine"

# Maps the format of a source file to its reference.
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
            # A session with the reference kernels is not included, because these kernels take minutes for a model that
            # the delegate computes in a second.
            XNNPACK: (Session({_LITERT_KERNELS: "AUTO"}),),
        },
    ),
    "onnx": Reference(
        "ONNX Runtime",
        "onnxruntime",
        "onnxruntime",
        {
            # Without this option, ONNX Runtime converts int8 to uint8 on x86-64. ONNX Runtime then does not recognize
            # some quantized operators, and computes them in float32. The graph optimizations of ONNX Runtime turn float
            # operators between conversions into quantized operators.
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
        "torch_python",
    ),
    "pt2": Reference("PyTorch", "torch", "torch_exported", {PT2E: (Session({"execution": "eager"}),)}, "torch_python"),
    # The layers of a quantized model are fused already. Without this option, MXNet would fuse others when it binds it.
    "mxnet": Reference(
        "MXNet", "mxnet", "mxnet", {MXNET_ONEDNN: (Session({"MXNET_SUBGRAPH_BACKEND": "NONE"}),)}, "mxnet_python"
    ),
    # Without this property, OpenVINO computes the float parts in bfloat16 on some processors.
    "openvino": Reference(
        "OpenVINO",
        "openvino",
        "openvino",
        {OPENVINO: (Session({"INFERENCE_PRECISION_HINT": "f32"}),)},
        "openvino_python",
    ),
    "executorch": Reference(
        "ExecuTorch", "executorch", "executorch", {EXECUTORCH: (Session({}),)}, "executorch_python"
    ),
}


def reference_for(source_format: str, numerics: str) -> Reference | None:
    """Returns the runtime that defines `numerics` for files of `source_format`, or None if no runtime does."""
    reference = REFERENCES.get(source_format)
    return reference if reference is not None and numerics in reference.sessions else None
