"""The options of a quantization. Together they are one option of the build that quantizes, and so a part of that
build's key.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from typing import Any

from service.core.digest import Digest, parse_digest
from service.core.errors import InvalidInput
from service.core.models.metadata import NOTHING, ModelMetadata

QUANTIZE = "quantize"  # the name of the option
MOST_SAMPLES = 100_000
MOST_ROUNDS = 8
WEIGHT_BITS, LEAST_BLOCK = (4, 8), 16
ARTIFACT_TYPE = "application/vnd.octet.quantization.v1"
REPORT_MEDIA_TYPE = "application/vnd.octet.quantization.report.v1+json"
DATA_MEDIA_TYPE = "application/vnd.octet.quantization.data.v1"
_UNITS_S = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
_OF_ALL_WAYS = ("data", "metadata", "dynamic", "weights", "block")


class Method(StrEnum):
    """The methods of choosing ranges. The values are the keys of `calibration.methods.METHODS`; a test compares the
    two.
    """

    MINMAX = "minmax"
    PERCENTILE = "percentile"
    KL = "kl"
    MSE = "mse"
    POWER_OF_TWO = "power-of-two"
    MOVING_AVERAGE = "moving-average"


class Storage(StrEnum):
    """The type that activations are stored as."""

    UINT8 = "uint8"
    INT8 = "int8"


class Raised(StrEnum):
    """The intermediate precision of layers that a budget moves out of 8-bit integers, but that need not stay in
    float32.
    """

    WIDE = "16x8"
    BFLOAT16 = "bfloat16"


@dataclass(frozen=True)
class LatencyBudget:
    """The longest time that a call may take: absolute, or a multiple of the time with all layers in integers.

    Attributes:
        amount: a number of `unit`.
        unit: `us`, `ms` or `s`; or `x` for a multiple.
    """

    amount: float
    unit: str

    @staticmethod
    def parse(text: str) -> LatencyBudget:
        """Parses a bound such as `1.2x`, `5ms` or `800us`. Raises `InvalidInput` if `text` is not of that form."""
        found = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)(x|us|ms|s)", text)
        if found is None or float(found[1]) == 0:
            raise InvalidInput(
                f"{text!r} is not a latency budget", hint="write it like 5ms, or like 1.2x the time in integers"
            )
        return LatencyBudget(float(found[1]), found[2])

    def limit_s(self, base_s: float) -> float:
        """Returns the bound in seconds for a model that takes `base_s` with all layers in integers."""
        return self.amount * (base_s if self.unit == "x" else _UNITS_S[self.unit])

    def __str__(self) -> str:
        return f"{self.amount:g}{self.unit}"


@dataclass(frozen=True)
class LiveRange:
    """A range that live requests need.

    Attributes:
        tensor: the tensor's name in the served model, as counts of live values have it (`core.models.ranges`).
    """

    tensor: str
    low: float
    high: float

    @staticmethod
    def from_json(members: Mapping[str, Any]) -> LiveRange:
        """Raises `InvalidInput` if the range is empty or not finite."""
        found = LiveRange(str(members["tensor"]), float(members["low"]), float(members["high"]))
        if not (math.isfinite(found.low) and math.isfinite(found.high) and found.low < found.high):
            raise InvalidInput(f"the live range of {found.tensor!r} is {found.low} to {found.high}")
        return found


@dataclass(frozen=True)
class QuantizationOptions:
    """How a float model is quantized.

    Attributes:
        method: how the ranges of tensors are chosen.
        activations: the type that activations are stored as.
        keep: operators that stay in float, by the names of their outputs.
        wide: operators with 16-bit activations and 8-bit weights, by the names of their outputs.
        bfloat16: Conv, Gemm and MatMul operators whose operands are rounded to bfloat16, by the names of their outputs.
        equalize: True to scale the channels of neighboring layers to equal ranges first.
        correct_bias: True to correct biases by the amount that rounding the weights adds to the mean of each channel.
        adaround: True to round weights so that results change least, instead of to the nearest value.
        rounds: the number of times that ranges are chosen again, from the values in the quantized model.
        sensitivity: True to measure the cost of each layer and the trade-off curve too.
        budget: the largest share of correct answers that quantization may lose. To stay within it, further layers are
            taken out of 8-bit integers. None: no limit.
        raise_to: the precision that the budget gives to layers for which this precision suffices; other layers stay in
            float32.
        latency_budget: the longest time that a call may take. As many of the noisiest layers stay in float as this time
            allows. None: no limit.
        samples: the number of calibration inputs that are used.
        metadata: the preprocessing that converts pictures to tensors.
        data: the stored calibration set. None if a command reads the set itself, or if no inputs are needed.
        dynamic: True to quantize only matrix products, with ranges of their operands that are found at run time.
        weights: the number of bits of weights if only the weights of matrix products are quantized; else None.
        block: the number of such weights that share a scale.
        live: ranges that the ranges of tensors must contain, in addition to what the method chooses.
    """

    method: Method = Method.MINMAX
    activations: Storage = Storage.UINT8
    keep: tuple[str, ...] = ()
    wide: tuple[str, ...] = ()
    bfloat16: tuple[str, ...] = ()
    equalize: bool = False
    correct_bias: bool = True
    adaround: bool = False
    rounds: int = 0
    sensitivity: bool = False
    budget: float | None = None
    raise_to: Raised = Raised.WIDE
    latency_budget: LatencyBudget | None = None
    samples: int = 256
    metadata: ModelMetadata = NOTHING
    data: Digest | None = None
    dynamic: bool = False
    weights: int | None = None
    block: int = 32
    live: tuple[LiveRange, ...] = ()

    @property
    def takes_inputs(self) -> bool:
        """True if the quantization needs calibration inputs. If false, members that need inputs have their defaults."""
        return not self.dynamic and self.weights is None

    @property
    def suffix(self) -> str:
        """The suffix of the quantized file's name, with the number of bits of its weights: `.int8.onnx`."""
        return f".int{self.weights or 8}.onnx"

    def check(self, has_inputs: bool) -> None:
        """Checks that the options belong to exactly one way to quantize: by calibration, `dynamic` or `weights`.

        Args:
            has_inputs: True if there is a calibration set.

        Raises:
            InvalidInput: no way or several ways are chosen, a member is set that belongs to another way, or a number is
                out of range.
        """
        if sum((has_inputs, self.dynamic, self.weights is not None)) != 1:
            raise InvalidInput(
                "a model is quantized in one of three ways", hint="give inputs, or dynamic, or the bits of weights"
            )
        for name, value, least, most in (
            ("samples", self.samples, 1, MOST_SAMPLES),
            ("rounds", self.rounds, 0, MOST_ROUNDS),
        ):
            if not least <= value <= most:
                raise InvalidInput(f"{name} is {value}", hint=f"use a number from {least} to {most}")
        if self.weights is not None:
            check_blocks(self.weights, self.block)
        if self.raise_to is Raised.BFLOAT16 and (self.budget is None or self.latency_budget is not None):
            raise InvalidInput(
                "raise_to bfloat16 needs a budget and cannot be combined with latency_budget: calls are timed on a "
                "target without bfloat16 instructions",
                hint="give budget alone, or name single layers with bfloat16",
            )
        others = [] if has_inputs else [each.name for each in fields(self) if each.name not in _OF_ALL_WAYS]
        others += [] if self.weights is not None else ["block"]
        names = [name for name in others if getattr(self, name) != getattr(QuantizationOptions, name)]
        if names:
            raise InvalidInput(
                f"{', '.join(names)} cannot be combined with the chosen way to quantize", hint="leave it out"
            )

    def to_json(self) -> dict[str, Any]:
        return {
            "method": self.method,
            "activations": self.activations,
            "keep": list(self.keep),
            "wide": list(self.wide),
            "bfloat16": list(self.bfloat16),
            "equalize": self.equalize,
            "correct_bias": self.correct_bias,
            "adaround": self.adaround,
            "rounds": self.rounds,
            "sensitivity": self.sensitivity,
            "budget": self.budget,
            "raise_to": self.raise_to,
            "latency_budget": None if self.latency_budget is None else str(self.latency_budget),
            "samples": self.samples,
            "metadata": self.metadata.to_json(),
            "data": self.data,
            "dynamic": self.dynamic,
            "weights": self.weights,
            "block": self.block,
            **({"live": [asdict(each) for each in self.live]} if self.live else {}),
        }

    @staticmethod
    def from_json(members: Mapping[str, Any]) -> QuantizationOptions:
        # Builds that an earlier release requested lack some members. That release did not correct biases.
        members = {**QuantizationOptions(correct_bias=False).to_json(), **members}
        return QuantizationOptions(
            method=Method(members["method"]),
            activations=Storage(members["activations"]),
            keep=tuple(members["keep"]),
            wide=tuple(members["wide"]),
            bfloat16=tuple(members["bfloat16"]),
            equalize=members["equalize"],
            correct_bias=members["correct_bias"],
            adaround=members["adaround"],
            rounds=members["rounds"],
            sensitivity=members["sensitivity"],
            budget=members["budget"],
            raise_to=Raised(members["raise_to"]),
            latency_budget=None if (bound := members["latency_budget"]) is None else LatencyBudget.parse(bound),
            samples=members["samples"],
            metadata=ModelMetadata.from_json(members["metadata"]),
            data=None if members["data"] is None else parse_digest(members["data"]),
            dynamic=members["dynamic"],
            weights=members["weights"],
            block=members["block"],
            live=tuple(map(LiveRange.from_json, members.get("live", ()))),
        )


def check_blocks(bits: int, block: int) -> None:
    """Checks the bits and the block size of weights.

    Raises:
        InvalidInput: `bits` is neither 4 nor 8, or `block` is not a power of two of at least 16.
    """
    if bits not in WEIGHT_BITS or block < LEAST_BLOCK or block & (block - 1):
        raise InvalidInput(
            f"weights of {bits} bits in blocks of {block} are not supported", hint="use 4 or 8 bits, and 16, 32, 64 …"
        )


def quantization_of(options: Mapping[str, Any]) -> QuantizationOptions | None:
    """Returns the quantization in a build's options; None for a build that compiles."""
    members = options.get(QUANTIZE)
    return None if members is None else QuantizationOptions.from_json(members)


def is_quantization(options: Mapping[str, Any]) -> bool:
    """Returns true if a build with these options quantizes a model instead of compiling it."""
    return QUANTIZE in options


def parse_share(text: str) -> float:
    """Parses a share such as `0.5%` or `0.005`.

    Raises:
        InvalidInput: `text` is not a number from 0 to below 1, or a percentage below 100.
    """
    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError as error:
        raise InvalidInput(f"{text!r} is not a share", hint="write it like 0.5%") from error
    if not 0 <= share < 1:
        raise InvalidInput(f"{text!r} is not a share from 0 to below 100 %", hint="write it like 0.5%")
    return share
