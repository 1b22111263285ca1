"""Metadata of a model: its task, the names of its classes, and the processing that converts a picture or a text to its
inputs.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from typing import Any

from service.core.errors import InvalidInput
from service.core.models.sound import MAX_RATE, MIN_RATE
from service.core.models.task import Activation, Task
from service.core.models.text import NO_TEXT, TextProcessing

MAX_LABELS = 100_000
MAX_SIDE = 1 << 14  # the limit for a side of a resized picture
MAX_COLUMNS = 100_000
MAX_LABELS_CHARACTERS = 2 << 20  # the limit for all labels together


class Resize(StrEnum):
    """The ways to resize a picture to the shape of the input."""

    STRETCH = "stretch"  # the aspect ratio may change
    CROP = "crop"  # the aspect ratio is kept; the excess is cut off equally at two opposite edges


class Resample(StrEnum):
    """The filters that compute the pixels of a resized picture, as Pillow defines them."""

    NEAREST = "nearest"
    BOX = "box"
    BILINEAR = "bilinear"
    HAMMING = "hamming"
    BICUBIC = "bicubic"
    LANCZOS = "lanczos"


class Channels(StrEnum):
    """The order of the channels of a color picture."""

    RGB = "rgb"
    BGR = "bgr"


class Layout(StrEnum):
    """The order of the axes of an image input."""

    NHWC = "nhwc"
    NCHW = "nchw"


@dataclass(frozen=True)
class ModelMetadata:
    """The metadata of a model. Members may be missing; `service.runtime.image` defines the defaults.

    Attributes:
        labels: the names of the classes, class 0 first.
        mean, std: the normalization of pixels, one number for each channel or one for all: the input is
            (pixel / 255 - mean) / std, the convention of torchvision's `Normalize`.
        resize: how pictures are resized.
        layout: the order of the axes, for inputs whose shape does not determine it.
        resample: the filter that resizes pictures.
        resize_to: the size to which a picture is resized before the center of the input's size is cropped: its shorter
            edge, or its height and width. If it is set, `resize` is not used.
        channels: the order of the channels, also of `mean` and `std`; RGB if missing.
        task: the task of the model, which determines the form of its results.
        activation: the function that converts the outputs of a classifier to scores.
        text: the processing of text, for models of text.
        sampling_rate: the number of samples of a waveform in a second, for models of sounds.
        standardize: true if a waveform is shifted and scaled to mean 0 and variance 1.
        columns: the names of the features, for models of rows of numbers.
    """

    labels: tuple[str, ...] = ()
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    resize: Resize | None = None
    layout: Layout | None = None
    resample: Resample | None = None
    resize_to: tuple[int, ...] = ()
    channels: Channels | None = None
    task: Task | None = None
    activation: Activation | None = None
    text: TextProcessing = NO_TEXT
    sampling_rate: int | None = None
    standardize: bool | None = None
    columns: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Raises `InvalidInput` if a member has an invalid value."""
        for name, values in (("mean", self.mean), ("std", self.std)):
            if len(values) not in (0, 1, 3) or not all(map(math.isfinite, values)):
                raise InvalidInput(
                    f"{name} is {_comma_separated(values)}", hint="one number for each channel, or one for all"
                )
        if len(self.resize_to) > 2 or not all(1 <= side <= MAX_SIDE for side in self.resize_to):
            raise InvalidInput(
                f"resize_to is {_comma_separated(self.resize_to)}", hint="the shorter edge, or the height and the width"
            )
        if any(value <= 0 for value in self.std):
            raise InvalidInput(f"std is {_comma_separated(self.std)}, but each number has to be above 0")
        if self.sampling_rate is not None and not MIN_RATE <= self.sampling_rate <= MAX_RATE:
            raise InvalidInput(f"sampling_rate is {self.sampling_rate}, but has to be from {MIN_RATE} to {MAX_RATE}")
        if len(self.columns) > MAX_COLUMNS or sum(map(len, self.columns)) > MAX_LABELS_CHARACTERS:
            raise InvalidInput(
                f"there are more than {MAX_COLUMNS} columns, or {MAX_LABELS_CHARACTERS} characters of them"
            )
        if len(set(self.columns)) < len(self.columns):
            raise InvalidInput("columns contains a name twice")
        if len(self.labels) > MAX_LABELS or sum(map(len, self.labels)) > MAX_LABELS_CHARACTERS:
            raise InvalidInput(
                f"there are more than {MAX_LABELS} labels, or {MAX_LABELS_CHARACTERS} characters of them"
            )

    def __bool__(self) -> bool:
        """Returns true if any member is set."""
        return self != NOTHING

    def __str__(self) -> str:
        """Returns a summary such as `10 labels, mean 0.5, std 0.25, crop`."""
        parts = [
            f"{len(self.labels)} label{'s' if len(self.labels) > 1 else ''}" if self.labels else "",
            f"mean {_comma_separated(self.mean)}" if self.mean else "",
            f"std {_comma_separated(self.std)}" if self.std else "",
            f"resized to {_comma_separated(self.resize_to)}" if self.resize_to else "",
            f"{self.sampling_rate} samples per second" if self.sampling_rate else "",
            "standardized" if self.standardize else "",
            f"columns {', '.join(self.columns)}" if self.columns else "",
            *(
                str(each)
                for each in (
                    self.resize,
                    self.resample,
                    self.channels,
                    self.layout,
                    self.task,
                    self.activation,
                    self.text,
                )
                if each
            ),
        ]
        return ", ".join(filter(None, parts))

    @property
    def is_normalized(self) -> bool:
        """True if a mean or a standard deviation is set."""
        return bool(self.mean or self.std)

    @property
    def of_pictures(self) -> ModelMetadata:
        """Only the members that define how a picture, a sound or a table becomes an input."""
        return replace(self, labels=(), task=None, activation=None, text=NO_TEXT)

    def over(self, other: ModelMetadata) -> ModelMetadata:
        """Returns this metadata with missing members taken from `other`. `mean` and `std` are taken together, and so
        are `resize`, `resample` and `resize_to`.
        """
        mean, std = (self.mean, self.std) if self.is_normalized else (other.mean, other.std)
        resizing = self if self.resize or self.resample or self.resize_to else other
        return ModelMetadata(
            self.labels or other.labels,
            mean,
            std,
            resizing.resize,
            self.layout or other.layout,
            resizing.resample,
            resizing.resize_to,
            self.channels or other.channels,
            self.task or other.task,
            self.activation or other.activation,
            self.text.over(other.text),
            self.sampling_rate or other.sampling_rate,
            other.standardize if self.standardize is None else self.standardize,
            self.columns or other.columns,
        )

    def to_json(self) -> dict[str, Any]:
        """Returns the members that are set."""
        members = {
            "labels": list(self.labels),
            "mean": list(self.mean),
            "std": list(self.std),
            "resize": self.resize,
            "layout": self.layout,
            "resample": self.resample,
            "resize_to": list(self.resize_to),
            "channels": self.channels,
            "task": self.task,
            "activation": self.activation,
            "text": self.text.to_json(),
            "sampling_rate": self.sampling_rate,
            "standardize": self.standardize,
            "columns": list(self.columns),
        }
        return {name: value for name, value in members.items() if value or value is False}

    def to_text(self) -> str:
        """Returns the members as JSON text; empty if none is set."""
        return json.dumps(self.to_json(), ensure_ascii=False, sort_keys=True) if self else ""

    @staticmethod
    def from_json(members: Mapping[str, Any]) -> ModelMetadata:
        """Parses the result of `to_json`. Raises `InvalidInput` if it is not well formed."""
        try:
            labels = members.get("labels", ())
            if not all(isinstance(label, str) for label in labels):
                raise ValueError("a label is not a string")
            mean, std = (tuple(map(float, members.get(name, ()))) for name in ("mean", "std"))
            sides = members.get("resize_to", ())
            if not all(isinstance(side, int) for side in sides):
                raise ValueError("resize_to does not consist of whole numbers")
            enums = {name: (of, members.get(name)) for name, of in _ENUMS.items()}
            chosen: dict[str, Any] = {name: of(value) for name, (of, value) in enums.items() if value is not None}
            text = TextProcessing.from_json(members.get("text") or {})
            columns = members.get("columns", ())
            if not all(isinstance(column, str) for column in columns):
                raise ValueError("a column is not a string")
            rate, standardize = members.get("sampling_rate"), members.get("standardize")
            if rate is not None and (not isinstance(rate, int) or isinstance(rate, bool)):
                raise ValueError("sampling_rate is not a whole number")
            if standardize is not None and not isinstance(standardize, bool):
                raise ValueError("standardize is not true or false")
            return ModelMetadata(
                tuple(labels),
                mean,
                std,
                **chosen,
                resize_to=tuple(sides),
                text=text,
                sampling_rate=rate,
                standardize=standardize,
                columns=tuple(columns),
            )
        except (AttributeError, OverflowError, TypeError, ValueError) as error:
            raise InvalidInput(f"a model's metadata is not well formed: {error}") from error

    @staticmethod
    def from_file(facts: Mapping[str, Any]) -> ModelMetadata:
        """Returns the metadata in the facts of a model file. A digest of a tokenizer is left out, because a file could
        contain the digest of any file in the store, such as that of another tenant.

        Raises:
            InvalidInput: the facts do not have the form that the compiler writes.
        """
        found = ModelMetadata.from_json(facts.get("metadata") or {})
        return replace(found, text=found.text.without_tokenizer())

    @staticmethod
    @lru_cache(maxsize=256)
    def from_text(text: str) -> ModelMetadata:
        """Parses the result of `to_text`. Raises `InvalidInput` if it is not well formed."""
        try:
            return ModelMetadata.from_json(json.loads(text)) if text else NOTHING
        except (RecursionError, ValueError) as error:  # also for too deep JSON, or a number of thousands of digits
            raise InvalidInput("a model's metadata is not JSON") from error


def parse_labels(text: str) -> tuple[str, ...]:
    """Parses labels, one per line, class 0 first."""
    return tuple(text.removeprefix("\ufeff").splitlines())  # a byte order mark is not part of the first label


def parse_numbers(text: str) -> tuple[float, ...]:
    """Parses numbers separated by commas, such as `0.485,0.456,0.406`; an empty text gives none.

    Raises:
        InvalidInput: `text` is not of that form.
    """
    try:
        return tuple(float(part) for part in text.split(",")) if text else ()
    except ValueError as error:
        raise InvalidInput(f"{text!r} is not a list of numbers", hint="write it like 0.485,0.456,0.406") from error


def _comma_separated(values: Sequence[float]) -> str:
    return ", ".join(f"{value:g}" for value in values)


NOTHING = ModelMetadata()
_ENUMS: Mapping[str, type[StrEnum]] = {
    "resize": Resize,
    "layout": Layout,
    "resample": Resample,
    "channels": Channels,
    "task": Task,
    "activation": Activation,
}
