"""The tasks of models: what goes in, and which form the result has."""

from __future__ import annotations

from enum import StrEnum


class Task(StrEnum):
    """The task of a model version. It determines the form of the results."""

    EMBED = "embed"  # a text -> a vector
    RERANK = "rerank"  # a query and a document -> a score
    CLASSIFY = "classify"  # a text -> labels with scores
    CLASSIFY_TOKENS = "classify-tokens"  # a text -> spans with labels and scores
    CLASSIFY_IMAGES = "classify-images"  # a picture -> labels with scores
    DETECT = "detect"  # a picture -> boxes with labels and scores

    @property
    def is_about_text(self) -> bool:
        """True if the model's input is text, which a tokenizer converts to token ids."""
        return self not in (Task.CLASSIFY_IMAGES, Task.DETECT)


class Activation(StrEnum):
    """The function that converts the last outputs of a model (logits) to scores."""

    NONE = "none"
    SOFTMAX = "softmax"  # one of the classes applies
    SIGMOID = "sigmoid"  # each class applies or not, independently
    TANH = "tanh"  # from -1 to 1
