"""TensorFlow Serving's REST API (https://www.tensorflow.org/tfx/serving/api_rest): its requests as samples, and the
documents that it returns.

Numbers are real values: a quantized tensor appears as float32, so that a client of a float model can use the quantized
model without a change. A dimension of size 1 at the beginning of a tensor is the batch. `{"b64": "…"}` is a file for
the only input or for an input by name: a picture, or a sound.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from service.api.control.predictions.base64_files import decode_bytes
from service.api.control.predictions.predicting import Computed, Described
from service.api.control.predictions.samples import Sample, limited
from service.core.errors import InvalidInput
from service.core.models.model import VersionState

if TYPE_CHECKING:  # NumPy is imported when it is used
    from service.core.models.signature import TensorSpec

SIGNATURE = "serving_default"
_TEXTS = {"text", "text_pair"}
_DATATYPES = {
    "BOOL": "DT_BOOL",
    "UINT8": "DT_UINT8",
    "UINT16": "DT_UINT16",
    "INT8": "DT_INT8",
    "INT16": "DT_INT16",
    "INT32": "DT_INT32",
    "INT64": "DT_INT64",
    "FP16": "DT_HALF",
    "FP32": "DT_FLOAT",
    "FP64": "DT_DOUBLE",
    "BYTES": "DT_STRING",
}
_STATES = {VersionState.READY: "AVAILABLE", VersionState.BUILDING: "LOADING"}


def rows_in(instances: Sequence[Any]) -> list[Sample]:
    """Returns the samples of a request in the row format: `instances`.

    Raises:
        InvalidInput: an instance is malformed. The message names it.
        TooLarge: there are too many instances.
    """
    if not instances:
        raise InvalidInput("instances is empty", hint="send a list with the input of each prediction")
    return limited([_sample(each, f"instances[{index}]") for index, each in enumerate(instances)])


def columns_in(inputs: Any, model: Described) -> tuple[list[Sample], bool]:
    """Returns the samples of a request in the column format, `inputs`, and true if they are a batch.

    Raises:
        InvalidInput: the inputs are malformed, or have different numbers of rows.
        TooLarge: there are too many rows.
    """
    if not _is_batched(model.signature.inputs) and not model.metadata.text:
        return [_sample(inputs, "inputs")], False
    if isinstance(inputs, Mapping) and not _is_file(inputs):
        counts = {name: len(rows) if isinstance(rows, list) else 1 for name, rows in inputs.items()}
        if len(set(counts.values())) != 1:
            found = ", ".join(f"{name!r} has {count}" for name, count in counts.items()) or "there are no inputs"
            raise InvalidInput(
                f"the inputs have different numbers of rows: {found}", hint="the first axis is the batch"
            )
        columns = {name: rows if isinstance(rows, list) else [rows] for name, rows in inputs.items()}
        rows: Iterable[Any] = (dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True))
    else:
        rows = inputs if isinstance(inputs, list) else [inputs]
    samples = limited([_sample(each, f"inputs[{index}]") for index, each in enumerate(rows)])
    if not samples:
        raise InvalidInput("inputs is empty", hint="send the rows of each input")
    return samples, True


def answer_rows(computed: Sequence[Computed]) -> dict[str, Any]:
    """Returns the response to a request in the row format."""
    return {"predictions": [_only(_outputs(each)) for each in computed]}


def answer_columns(computed: Sequence[Computed], is_batch: bool) -> dict[str, Any]:
    """Returns the response to a request in the column format."""
    rows = [_outputs(each) for each in computed]
    if not is_batch:
        return {"outputs": _only(rows[0])}
    return {"outputs": _only({name: [row[name] for row in rows] for name in rows[0]})}


def describe(name: str, version: str, model: Described) -> dict[str, Any]:
    """Returns the metadata of a version of a model; `version` is empty if the request names none."""
    inputs: dict[str, Any] = {spec.name: _tensor(spec) for spec in model.signature.inputs}
    if model.metadata.text:
        inputs = {"text": _info("text", "DT_STRING", [-1])}
    signature = {
        "inputs": inputs,
        "outputs": {spec.name: _tensor(spec) for spec in model.signature.outputs},
        "method_name": "tensorflow/serving/predict",
    }
    return {
        "model_spec": {"name": name, "signature_name": "", **({"version": version} if version else {})},
        "metadata": {"signature_def": {"signature_def": {SIGNATURE: signature}}},
    }


def status(version: int, state: VersionState, reason: str, is_served_by_workers: bool) -> dict[str, Any]:
    """Returns the status of a version.

    Args:
        is_served_by_workers: true if this process forwards predictions to the workers of a cluster.
    """
    found = _STATES.get(state, "END")
    if state is VersionState.ELSEWHERE and is_served_by_workers:
        found = "AVAILABLE"
    is_well = found != "END"
    about = {"error_code": "OK" if is_well else "UNKNOWN", "error_message": "" if is_well else reason}
    return {"version": str(version), "state": found, "status": about}


def _sample(given: Any, where: str) -> Sample:
    if isinstance(given, str):
        return Sample(text=given)
    if not isinstance(given, Mapping):
        return Sample(values=given)
    if _is_file(given):
        return Sample(picture=decode_bytes(given["b64"], where))
    if "text" in given and given.keys() <= _TEXTS and all(isinstance(each, str) for each in given.values()):
        return Sample(text=given["text"], pair=given.get("text_pair"))
    return Sample(
        inputs={
            name: decode_bytes(each["b64"], f"{where}.{name}") if _is_file(each) else each
            for name, each in given.items()
        }
    )


def _is_file(given: Any) -> bool:
    return isinstance(given, Mapping) and given.keys() == {"b64"}


def _is_batched(specs: Sequence[TensorSpec]) -> bool:
    return all(spec.shape and spec.shape[0] in (1, -1) for spec in specs)


def _outputs(computed: Computed) -> dict[str, Any]:
    """Returns the outputs of one row: without the dimension of the batch."""
    from service.runtime.results import listed

    return {
        name: listed(value[0] if value.ndim and value.shape[0] == 1 else value)
        for name, value in computed.outputs.items()
    }


def _only(outputs: dict[str, Any]) -> Any:
    return next(iter(outputs.values())) if len(outputs) == 1 else outputs


def _tensor(spec: TensorSpec) -> dict[str, Any]:
    shape = [-1 if axis == 0 and size == 1 else size for axis, size in enumerate(spec.shape)]
    return _info(spec.name, "DT_FLOAT" if spec.quantization is not None else _DATATYPES[spec.datatype], shape)


def _info(name: str, dtype: str, shape: Sequence[int]) -> dict[str, Any]:
    dimensions = [{"size": str(size), "name": ""} for size in shape]
    return {"dtype": dtype, "tensor_shape": {"dim": dimensions, "unknown_rank": False}, "name": name}
