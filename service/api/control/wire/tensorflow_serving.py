"""Schemas of TensorFlow Serving's REST API."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from service.api.control.wire.base import Wire
from service.api.control.wire.openai import OpenAIModel


class TensorFlowRequest(Wire):
    """The inputs of predictions: one of `instances` and `inputs`."""

    signature_name: str | None = Field(None, description="`serving_default`, the only signature.")
    instances: list[Any] | None = Field(
        None, description="The row format: the input of each prediction, or an object with the inputs by name."
    )
    inputs: Any = Field(None, description="The column format: the batch of the only input, or of each input by name.")


class TensorFlowPrediction(Wire):
    predictions: list[Any] | None = Field(
        None, description="For `instances`: the output of each, or an object with the outputs by name."
    )
    outputs: Any = Field(None, description="For `inputs`: the batch of the only output, or of each output by name.")


class TensorFlowStatus(Wire):
    model_version_status: list[dict[str, Any]] = Field(
        description="For each version, `version`, `state` (`AVAILABLE`, `LOADING` or `END`) and the reason in `status`."
    )


class TensorFlowModel(TensorFlowStatus, OpenAIModel):
    """The status of a model, with the members of a model in OpenAI's API."""


class TensorFlowMetadata(Wire):
    model_spec: dict[str, str]
    metadata: dict[str, Any] = Field(description="`signature_def`, with the inputs and outputs of `serving_default`.")
