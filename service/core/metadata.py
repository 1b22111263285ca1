"""Metadata of a model: names of its classes, and the preprocessing that makes its input from a picture."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Any

from service.core.errors import InvalidInput

MAX_LABELS = 100_000
MAX_LABELS_CHARACTERS = 2 << 20  # of all of them


class Resize(StrEnum):
    """The ways to fit a picture of another shape to the input."""

    STRETCH = "stretch"  # the aspect ratio is not kept
    CROP = "crop"  # it is kept: what lies over at two edges, equally, is cut off


class Layout(StrEnum):
    """The axes of an image input."""

    NHWC = "nhwc"
    NCHW = "nchw"


@dataclass(frozen=True)
class ModelMetadata:
    """Each member may be left out; then `service.runtime.image` says what holds.

    Attributes:
        labels: of the classes, from 0.
        mean, std: of pixel / 255, one for each channel or one for all: the input is (pixel / 255 - mean) / std, the
            convention of torchvision's `Normalize`.
        resize: how pictures are fitted.
        layout: where the input's shape leaves that open.
    """

    labels: tuple[str, ...] = ()
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    resize: Resize | None = None
    layout: Layout | None = None

    def __post_init__(self) -> None:
        """Raises `InvalidInput`."""
        for name, values in (("mean", self.mean), ("std", self.std)):
            if len(values) not in (0, 1, 3) or not all(map(math.isfinite, values)):
                raise InvalidInput(f"{name} is {_listed(values)}", hint="one number for each channel, or one for all")
        if any(value <= 0 for value in self.std):
            raise InvalidInput(f"std is {_listed(self.std)}, and has to be above 0")
        if len(self.labels) > MAX_LABELS or sum(map(len, self.labels)) > MAX_LABELS_CHARACTERS:
            raise InvalidInput(
                f"there are more than {MAX_LABELS} labels, or {MAX_LABELS_CHARACTERS} characters of them"
            )

    def __bool__(self) -> bool:
        """Whether anything is known."""
        return self != NOTHING

    def __str__(self) -> str:
        """E.g. `10 labels, mean 0.5, std 0.25, crop`."""
        parts = [
            f"{len(self.labels)} label{'s' if len(self.labels) > 1 else ''}" if self.labels else "",
            f"mean {_listed(self.mean)}" if self.mean else "",
            f"std {_listed(self.std)}" if self.std else "",
            *(str(each) for each in (self.resize, self.layout) if each),
        ]
        return ", ".join(filter(None, parts))

    @property
    def is_normalized(self) -> bool:
        """Whether pictures are normalized by mean and standard deviation."""
        return bool(self.mean or self.std)

    def over(self, other: ModelMetadata) -> ModelMetadata:
        """This, and what `other` says where this says nothing. Mean and standard deviation belong together."""
        mean, std = (self.mean, self.std) if self.is_normalized else (other.mean, other.std)
        return ModelMetadata(
            self.labels or other.labels, mean, std, self.resize or other.resize, self.layout or other.layout
        )

    def to_json(self) -> dict[str, Any]:
        """Without what is not known."""
        members = {
            "labels": list(self.labels),
            "mean": list(self.mean),
            "std": list(self.std),
            "resize": self.resize,
            "layout": self.layout,
        }
        return {name: value for name, value in members.items() if value}

    def to_text(self) -> str:
        """As JSON; empty where nothing is known."""
        return json.dumps(self.to_json(), ensure_ascii=False, sort_keys=True) if self else ""

    @staticmethod
    def from_json(members: Mapping[str, Any]) -> ModelMetadata:
        """Raises `InvalidInput`."""
        try:
            labels = members.get("labels", ())
            if not all(isinstance(label, str) for label in labels):
                raise ValueError("a label is no text")
            mean, std = (tuple(map(float, members.get(name, ()))) for name in ("mean", "std"))
            resize, layout = members.get("resize"), members.get("layout")
            return ModelMetadata(
                tuple(labels),
                mean,
                std,
                None if resize is None else Resize(resize),
                None if layout is None else Layout(layout),
            )
        except (AttributeError, OverflowError, TypeError, ValueError) as error:
            raise InvalidInput(f"a model's metadata is not well formed: {error}") from error

    @staticmethod
    @lru_cache(maxsize=256)
    def from_text(text: str) -> ModelMetadata:
        """Parses the result of `to_text`. Raises `InvalidInput`."""
        try:
            return ModelMetadata.from_json(json.loads(text)) if text else NOTHING
        except (RecursionError, ValueError) as error:  # too deep, or with a number of thousands of digits
            raise InvalidInput("a model's metadata is not JSON") from error


def parse_labels(text: str) -> tuple[str, ...]:
    """Parses labels, one a line, class 0 first."""
    return tuple(text.removeprefix("\ufeff").splitlines())  # a byte order mark is no part of the first


def parse_numbers(text: str) -> tuple[float, ...]:
    """`0.485,0.456,0.406` -> numbers; none of an empty text. Raises `InvalidInput`."""
    try:
        return tuple(float(part) for part in text.split(",")) if text else ()
    except ValueError as error:
        raise InvalidInput(f"{text!r} is no list of numbers", hint="like 0.485,0.456,0.406") from error


def _listed(values: Sequence[float]) -> str:
    return ", ".join(f"{value:g}" for value in values)


NOTHING = ModelMetadata()
