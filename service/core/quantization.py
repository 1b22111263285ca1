"""What a quantization is asked for: an option of the build that does it, and so a part of its key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from service.core.digest import Digest, parse_digest
from service.core.errors import InvalidInput
from service.core.metadata import NOTHING, ModelMetadata

QUANTIZE = "quantize"  # the name of the option
MOST_SAMPLES = 100_000
ARTIFACT_TYPE = "application/vnd.octet.quantization.v1"
REPORT_MEDIA_TYPE = "application/vnd.octet.quantization.report.v1+json"
DATA_MEDIA_TYPE = "application/vnd.octet.quantization.data.v1"


class Method(StrEnum):
    """The names of `quantize.methods.METHODS`, which a test compares."""

    MINMAX = "minmax"
    PERCENTILE = "percentile"
    KL = "kl"
    MSE = "mse"
    POWER_OF_TWO = "power-of-two"
    MOVING_AVERAGE = "moving-average"


class Storage(StrEnum):
    """Of activations."""

    UINT8 = "uint8"
    INT8 = "int8"


@dataclass(frozen=True)
class QuantizationOptions:
    """How a float model is quantized.

    Attributes:
        method: how ranges are chosen.
        activations: how they are stored.
        keep: names of operators' outputs that stay in float.
        sensitivity: whether the cost of each layer, and the curve, are measured too.
        budget: the largest share of answers that may be lost, for which further layers stay in float; None: any.
        samples: as many inputs are used.
        metadata: what pictures are made tensors by.
        data: the stored calibration set; None of a command, which reads its own.
    """

    method: Method = Method.MINMAX
    activations: Storage = Storage.UINT8
    keep: tuple[str, ...] = ()
    sensitivity: bool = False
    budget: float | None = None
    samples: int = 256
    metadata: ModelMetadata = NOTHING
    data: Digest | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "method": self.method,
            "activations": self.activations,
            "keep": list(self.keep),
            "sensitivity": self.sensitivity,
            "budget": self.budget,
            "samples": self.samples,
            "metadata": self.metadata.to_json(),
            "data": self.data,
        }

    @staticmethod
    def from_json(members: Mapping[str, Any]) -> QuantizationOptions:
        return QuantizationOptions(
            Method(members["method"]),
            Storage(members["activations"]),
            tuple(members["keep"]),
            members["sensitivity"],
            members["budget"],
            members["samples"],
            ModelMetadata.from_json(members["metadata"]),
            None if members["data"] is None else parse_digest(members["data"]),
        )


def quantization_of(options: Mapping[str, Any]) -> QuantizationOptions | None:
    """What a build quantizes by; None of one that compiles."""
    asked = options.get(QUANTIZE)
    return None if asked is None else QuantizationOptions.from_json(asked)


def is_quantization(options: Mapping[str, Any]) -> bool:
    """Whether a build with these options quantizes, and does not compile."""
    return QUANTIZE in options


def parse_share(text: str) -> float:
    """`0.5%` or `0.005`.

    Raises:
        InvalidInput: it is no share.
    """
    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError as error:
        raise InvalidInput(f"{text!r} is no share", hint="such as 0.5%") from error
    if not 0 <= share < 1:
        raise InvalidInput(f"{text!r} is no share of all answers", hint="such as 0.5%")
    return share
