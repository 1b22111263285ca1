"""Schemas of a model's signature, metadata and facts."""

from __future__ import annotations

from pydantic import Field

from service.api.control.wire.base import DIGEST_PATTERN, Wire
from service.core.models.metadata import MAX_COLUMNS, MAX_LABELS, Channels, Layout, Resample, Resize
from service.core.models.sound import MAX_RATE, MIN_RATE
from service.core.models.task import Activation, Task
from service.core.models.text import MAX_TOKENS, Side, TokenInput, Truncation


class Blob(Wire):
    digest: str
    size_bytes: int


class Quantization(Wire):
    """real = scale * (stored - zero_point)."""

    scale: float
    zero_point: int


class Bounds(Wire):
    """The range of valid values, both ends included."""

    low: float
    high: float


class Tensor(Wire):
    name: str
    datatype: str = Field(description="A datatype of the Open Inference Protocol.", examples=["UINT8"])
    shape: list[int] = Field(description="The shape; -1 marks a dynamic dimension.")
    quantization: Quantization | None = None
    bounds: Bounds | None = Field(
        None, description="For an input: the range of valid ids, or of the real values that it was calibrated for."
    )


class State(Tensor):
    """A tensor that a model keeps from one call of a sequence to the next."""

    initial: bool | int | float | str = Field(
        description="The initial value of every element; all values in base64 if the elements differ."
    )


class Signature(Wire):
    inputs: list[Tensor]
    outputs: list[Tensor]
    states: list[State] = Field([], description="The states of a model whose calls form sequences.")


class Scheme(Wire):
    storage: list[str] = Field(examples=[["int8"]])
    granularity: list[str] = Field(examples=[["per-axis"]])
    symmetric: bool


class TextProcessing(Wire):
    """The processing of text before and after the model. A member that is left out keeps its value."""

    tokenizer: str | None = Field(
        None,
        pattern=DIGEST_PATTERN,
        description="The digest of the tokenizer: the file `tokenizer.json` of the package `tokenizers`, which "
        "`PUT …/tokenizer` stores.",
    )
    tokenizer_bytes: int | None = Field(None, description="The size of the tokenizer. Requests need not set it.")
    max_length: int | None = Field(
        None, ge=1, le=MAX_TOKENS, description="The maximum number of tokens; longer texts are truncated."
    )
    padding_side: Side | None = Field(None, description="The end at which padding is added; `right` by default.")
    pad_id: int | None = Field(None, ge=0, description="The token id of padding; 0 by default.")
    inputs: dict[str, TokenInput] | None = Field(
        None,
        max_length=64,
        description="The data of each input, by its name. Needed only for inputs whose names differ from `input_ids`, "
        "`attention_mask`, `token_type_ids` and `position_ids`.",
    )
    output: str | None = Field(None, description="The output that contains the result; the first one by default.")
    pooling: str | None = Field(
        None,
        max_length=100,
        description="How the vectors of the tokens become one vector, if the output has one for each token: "
        "`mean`, `max`, `cls`, `last`, `mean-sqrt`, `weighted-mean`, or several joined, such as `cls+mean`.",
    )
    normalize: bool | None = Field(None, description="Whether each vector is divided by its Euclidean norm.")
    prompts: dict[str, str] | None = Field(
        None, max_length=64, description="The texts to put before a text, by the name of their purpose: `query`."
    )
    default_prompt: str | None = Field(None, description="The prompt that is used if a request names none.")
    strips: bool | None = Field(None, description="Whether white space around a text is removed.")
    lowercases: bool | None = Field(None, description="Whether a text is converted to lower case.")
    truncation: Truncation | None = Field(
        None, description="The text of a pair that is truncated; `longest_first` by default."
    )
    truncation_side: Side | None = Field(
        None, description="The end at which tokens of a long text are removed; `right` by default."
    )


class Metadata(Wire):
    """Labels, task and preprocessing. A member that is left out keeps its value, or the one from the model file."""

    labels: list[str] = Field([], max_length=MAX_LABELS, description="The names of the classes, from class 0.")
    mean: list[float] = Field(
        [],
        max_length=3,
        description="The mean of pixel / 255: one number for each channel, or one for all.",
        examples=[[0.485]],
    )
    std: list[float] = Field(
        [],
        max_length=3,
        description="The standard deviation of pixel / 255, in the same form; the input is (pixel / 255 - mean) / std.",
    )
    resize: Resize | None = Field(
        None,
        description="How a picture is fitted to the input's size: `stretch` (the default), or `crop`, which keeps "
        "the aspect ratio.",
    )
    layout: Layout | None = Field(None, description="The layout of the picture input, if its shape does not show it.")
    resample: Resample | None = Field(None, description="The filter that resizes pictures; `bilinear` by default.")
    resize_to: list[int] = Field(
        [],
        max_length=2,
        description="The size to which a picture is resized before its center is cropped to the input's size: the "
        "shorter edge, or the height and the width. It replaces `resize`.",
    )
    channels: Channels | None = Field(None, description="The order of the channels; `rgb` by default.")
    task: Task | None = Field(None, description="The task, which determines the form of results.")
    activation: Activation | None = Field(
        None, description="The function that converts the outputs of a classifier to scores."
    )
    text: TextProcessing | None = Field(None, description="The processing of text, for models of text.")
    sampling_rate: int | None = Field(
        None,
        ge=MIN_RATE,
        le=MAX_RATE,
        description="The number of samples of a waveform in a second, for models of sounds.",
    )
    standardize: bool | None = Field(
        None, description="Whether a waveform is shifted and scaled to mean 0 and variance 1."
    )
    columns: list[str] = Field(
        [], max_length=MAX_COLUMNS, description="The names of the features, for models of rows of numbers."
    )


class FloatGroup(Wire):
    """The operators of one type that compute in float for the same reason."""

    operator: str = Field(description="Their type in the model file; of a single operator, its name.")
    count: int
    macs: int = Field(description="Their multiply-accumulates of one call.")
    reason: str


class Facts(Wire):
    """Facts about a model that are known before it is compiled."""

    format: str
    signature: Signature
    operators: dict[str, int] = Field(description="The number of occurrences of each operator.")
    macs: int = Field(description="Multiply-accumulates of one call.")
    parameters: int
    parameter_bytes: int
    weights: Scheme | None
    activations: Scheme | None
    metadata: Metadata | None = Field(None, description="Labels and preprocessing from the file.")
    notices: list[str] = Field(
        [], description="Sentences for people: parts of the file that were left out, or that the model is float."
    )
    floating: list[FloatGroup] = Field([], description="The operators that compute in float.")
    integer_macs: int | None = Field(
        None, description="Multiply-accumulates in integers; null for a model that a release before 0.3 read."
    )
    computes: str = Field("", description="The class of a model whose weights alone are quantized, with their bits.")
