"""Schemas of predictions by task."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from service.api.control.wire.base import Wire


class PredictRequest(Wire):
    """The input of a prediction. One member is set."""

    image: str | list[str] | None = Field(
        None, description="A picture in base64 or as a data: URL, or several. JPEG, PNG, WebP, BMP or GIF."
    )
    sound: str | list[str] | None = Field(None, description="A WAV in the same form, or several.")
    values: list[Any] | float | None = Field(None, description="Real values for the only input.")
    inputs: dict[str, Any] | None = Field(None, description="Real values for each input, by name.")
    rows: list[Any] | None = Field(None, description="Several inputs, each as in `values` or in `inputs`.")
    text: str | list[str] | None = Field(None, description="A text, or several, for models of text.")
    text_pair: str | list[str] | None = Field(
        None, description="Beside `text`: the second text of a pair, such as the document for a query."
    )


class ClassScore(Wire):
    label: str
    score: float


class KeyPoint(Wire):
    """A point of an object, in fractions of the width and the height of the model's input."""

    x: float
    y: float
    score: float | None = Field(None, description="How sure the model is that the point is visible.")


class Box(ClassScore):
    """A box, in fractions of the width and the height of the model's input."""

    left: float
    top: float
    right: float
    bottom: float
    points: list[KeyPoint] | None = Field(None, description="The key points, if the model computes them.")


class Span(ClassScore):
    """A part of the text. Positions are characters: Unicode code points."""

    start: int
    end: int = Field(description="The position after the last character.")
    text: str


class OutputValues(Wire):
    name: str
    shape: list[int]
    values: Any = Field(description="The real values, in nested lists.")


class Prediction(Wire):
    """The result of a prediction. The task of the version defines which member is set."""

    classes: list[ClassScore] | None = Field(None, description="The best classes, best first.")
    boxes: list[Box] | None = Field(None, description="The objects that were detected, best first.")
    spans: list[Span] | None = Field(None, description="The spans of the text that have a label, in their order.")
    embedding: list[float] | None = None
    score: float | None = Field(None, description="The score of a reranker.")
    outputs: list[OutputValues] | None = Field(None, description="The outputs of a model without a task.")
    truncated: bool | None = Field(None, description="True if the text was longer than the model's maximum length.")
    results: list[Prediction] | None = Field(None, description="The result of each input, if the request has several.")
