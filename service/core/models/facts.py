"""Facts about a model that follow from its file alone. These facts are known before compilation and equal for all
targets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from service.core.artifacts.floating import FloatGroup
from service.core.models.metadata import NOTHING, ModelMetadata
from service.core.models.signature import ModelSignature


@dataclass(frozen=True)
class Scheme:
    """The quantization scheme of a model's weights or of its activations.

    Attributes:
        storage: the integer types, such as `int8`; several if tensors differ.
        granularity: `per-tensor`, `per-axis` or `per-block`; several if tensors differ.
        symmetric: True if every zero point is the middle of the stored type: 0, or 128 for `uint8`.
    """

    storage: tuple[str, ...]
    granularity: tuple[str, ...]
    symmetric: bool

    @staticmethod
    def from_json(scheme: Mapping[str, Any]) -> Scheme:
        return Scheme(tuple(scheme["storage"]), tuple(scheme["granularity"]), scheme["symmetric"])

    def __str__(self) -> str:
        """Returns a summary such as `int8 per-axis, symmetric`."""
        kind = "symmetric" if self.symmetric else "asymmetric"
        return f"{' and '.join(self.storage)} {' and '.join(self.granularity)}, {kind}"


@dataclass(frozen=True)
class Facts:
    """The facts about a model that Octet can compile.

    Attributes:
        format: the format of the file.
        signature: the model's inputs and outputs.
        operators: how often each operator occurs, by Octet's names.
        macs: the number of multiply-accumulates in one call, including those with padding.
        parameters: the number of elements of all constants.
        parameter_bytes: the size of all constants in the file.
        weights, activations: the quantization schemes; None if no weights, or no activations, are quantized.
        metadata: labels and preprocessing from the file.
        floating: the operators that compute in float, by type and reason.
        integer_macs: the multiply-accumulates in integers; None in the report of a release before 0.3.
        computes: the class of a model whose weights alone are quantized, such as "weights of 4 bits, computes in
            float32"; empty for all other models.
        notices: sentences that the model's owner should read: about parts of the file that were ignored, or that the
            model is not quantized.
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
    floating: tuple[FloatGroup, ...] = ()
    integer_macs: int | None = None
    computes: str = ""

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
            "floating": [each.to_json() for each in self.floating],
            "integer_macs": self.integer_macs,
            **({"computes": self.computes} if self.computes else {}),
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
            tuple(map(FloatGroup.from_json, facts.get("floating", ()))),
            facts.get("integer_macs"),
            str(facts.get("computes", "")),
        )


@dataclass(frozen=True)
class Outline:
    """The facts about a model that Octet cannot compile.

    Attributes:
        format: the format of the file.
        inputs, outputs: name, element type and shape. For a dimension without a size in the file, the shape contains
            its name, or None.
        operators: how often each operator occurs, by the framework's names.
        quantized: True if any part of the model is quantized.
        error: why the model cannot be compiled, as `OctetError.to_json` writes it.
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
