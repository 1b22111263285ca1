"""Octet's Python API: quantize and compile models, run them in this process, and use a server.

    import octet

    artifact = octet.compile("mobilenet_v2.tflite", "compiled")
    model = artifact.load()
    scores = model(image)

    with octet.Client("http://localhost:8080") as client:
        client.push("mobilenet_v2.tflite", "mobilenet")
        scores = client.predict("mobilenet", image)

All other packages of the distribution `octet-serve` are private. The names in `__all__`, and their public members,
follow semantic versioning.
"""

from importlib import import_module
from importlib.metadata import PackageNotFoundError, distribution
from sys import modules
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from octet import errors, qnn
    from octet.artifacts import Artifact, compile
    from octet.async_client import AsyncClient
    from octet.client import Build, Client
    from octet.evaluation import Evaluation, evaluate
    from octet.models import Model, load
    from octet.quantization import Quantized, quantize
    from service.core.verification.scoring import Metric

__all__ = [
    "Artifact",
    "AsyncClient",
    "Build",
    "Client",
    "Evaluation",
    "Metric",
    "Model",
    "Quantized",
    "compile",
    "errors",
    "evaluate",
    "load",
    "qnn",
    "quantize",
]

_MODULES = {
    "artifacts": {"Artifact", "compile"},
    "async_client": {"AsyncClient"},
    "client": {"Build", "Client"},
    "evaluation": {"Evaluation", "Metric", "evaluate"},
    "models": {"Model", "load"},
    "quantization": {"Quantized", "quantize"},
}


def _require_no_other_project() -> None:
    """Checks that no other distribution has written to this folder.

    Raises:
        ImportError: the distribution `octet` is installed, which is another project with a package of the same name.
    """
    try:
        other = distribution("octet")
    except PackageNotFoundError:
        return
    raise ImportError(
        f"another project, octet {other.version}, is installed in the same folder as Octet (octet-serve). Run: "
        "pip uninstall octet && pip install --force-reinstall --no-deps octet-serve"
    )


_require_no_other_project()


def __getattr__(name: str) -> Any:
    """Imports a module when one of its names is used: a client needs no compiler, and running a model no client."""
    if name in ("errors", "qnn"):
        return import_module(f"octet.{name}")
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f"octet.{module}"), name)
    message = f"module 'octet' has no attribute {name!r}"
    raise AttributeError(message, name=name, obj=modules[__name__])  # from these, Python suggests a similar name


def __dir__() -> list[str]:
    return sorted(__all__)
