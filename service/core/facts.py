"""Facts about a model, from its file: known before it is compiled, and the same for every target."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from service.core.metadata import NOTHING, ModelMetadata
from service.core.signature import ModelSignature


@dataclass(frozen=True)
class Scheme:
    """The quantization of tensors of one kind. There are several values where tensors differ.

    Attributes:
        storage: what the integers are, as `int8`.
        granularity: `per-tensor`, `per-axis` or `per-block`.
        symmetric: whether every zero point stands for the middle of what is stored: 0, or 128 of `uint8`.
    """

    storage: tuple[str, ...]
    granularity: tuple[str, ...]
    symmetric: bool

    @staticmethod
    def from_json(scheme: Mapping[str, Any]) -> Scheme:
        return Scheme(tuple(scheme["storage"]), tuple(scheme["granularity"]), scheme["symmetric"])

    def __str__(self) -> str:
        """E.g. `int8 per-axis, symmetric`."""
        kind = "symmetric" if self.symmetric else "asymmetric"
        return f"{' and '.join(self.storage)} {' and '.join(self.granularity)}, {kind}"


@dataclass(frozen=True)
class Facts:
    """A model's own facts.

    Attributes:
        format: of the file.
        operators: how often each operator occurs, in Octet's names.
        macs: multiply-accumulates of one call, those with padding included.
        parameters: elements of all constants.
        parameter_bytes: their size as stored.
        weights, activations: None where there are none that are quantized.
        metadata: labels and preprocessing from the file.
        notices: what its owner should know, a sentence for each: the parts of the file that were left out, and that the
            model is float.
    """

    format: str
    signature: ModelSignature
    operators: Mapping[str, int]
    macs: int
    parameters: int
    parameter_bytes: int
    weights: Scheme | None
    activations: Scheme | None
    metadata: ModelMetadata = NOTHING
    notices: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {
            "format": self.format,
            "signature": self.signature.to_json(),
            "operators": dict(self.operators),
            "macs": self.macs,
            "parameters": self.parameters,
            "parameter_bytes": self.parameter_bytes,
            "weights": None if self.weights is None else asdict(self.weights),
            "activations": None if self.activations is None else asdict(self.activations),
            **({"metadata": self.metadata.to_json()} if self.metadata else {}),
            **({"notices": list(self.notices)} if self.notices else {}),
        }

    @staticmethod
    def from_json(facts: Mapping[str, Any]) -> Facts:
        weights, activations = (facts[kind] and Scheme.from_json(facts[kind]) for kind in ("weights", "activations"))
        return Facts(
            facts["format"],
            ModelSignature.from_json(facts["signature"]),
            dict(facts["operators"]),
            facts["macs"],
            facts["parameters"],
            facts["parameter_bytes"],
            weights,
            activations,
            ModelMetadata.from_json(facts.get("metadata") or {}),
            tuple(map(str, facts.get("notices", ()))),
        )


@dataclass(frozen=True)
class Outline:
    """The outline of a model that cannot be compiled.

    Attributes:
        inputs, outputs: name, element type, and shape; of a dimension its name, or None, where the file gives no size.
        operators: how often each operator occurs, in the framework's names.
        quantized: whether anything in it is.
        error: why it is not compiled, as `OctetError.to_json` writes it.
    """

    format: str
    inputs: tuple[tuple[str, str, tuple[int | str | None, ...]], ...]
    outputs: tuple[tuple[str, str, tuple[int | str | None, ...]], ...]
    operators: Mapping[str, int]
    quantized: bool
    error: Mapping[str, str]

    def to_json(self) -> dict[str, Any]:
        return {
            "format": self.format,
            "inputs": [_end_json(end) for end in self.inputs],
            "outputs": [_end_json(end) for end in self.outputs],
            "operators": dict(self.operators),
            "quantized": self.quantized,
            "error": dict(self.error),
        }

    @staticmethod
    def from_json(outline: Mapping[str, Any]) -> Outline:
        inputs, outputs = (
            tuple((str(end["name"]), str(end["dtype"]), tuple(end["shape"])) for end in outline[what])
            for what in ("inputs", "outputs")
        )
        error = {str(name): str(text) for name, text in outline["error"].items()}
        return Outline(
            outline["format"], inputs, outputs, dict(outline["operators"]), bool(outline["quantized"]), error
        )


def _end_json(end: tuple[str, str, tuple[int | str | None, ...]]) -> dict[str, Any]:
    name, dtype, shape = end
    return {"name": name, "dtype": dtype, "shape": list(shape)}
