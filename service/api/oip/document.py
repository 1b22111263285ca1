"""The data plane's part of the OpenAPI document. FastAPI describes only the routes that it serves, and the data plane
serves these.
"""

from __future__ import annotations

from typing import Any

from service.workers.inference import ModelState

Members = dict[str, Any]

TAG: Members = {
    "name": "inference",
    "description": "The Open Inference Protocol, version 2, with its binary tensor extension, and Triton's extensions "
    "for statistics, configuration and the repository. Any client of KServe, Triton or OpenVINO Model Server works.",
}


def _object(required: str, **properties: Members) -> Members:
    return {"type": "object", "properties": properties, "required": required.split()}


def _array(items: Members, description: str = "") -> Members:
    return {"type": "array", "items": items} | ({"description": description} if description else {})


def _ref(name: str) -> Members:
    return {"$ref": f"#/components/schemas/{name}"}


_TEXT: Members = {"type": "string"}
_SHAPE = _array({"type": "integer"}, "The shape; -1 marks a dynamic dimension.")
_DATATYPE: Members = {"type": "string", "examples": ["UINT8", "INT8", "FP32"]}
_PARAMETERS: Members = {"type": "object", "additionalProperties": True}
_COUNT: Members = {"type": "integer", "minimum": 0}
_STAGES = "success fail queue compute_input compute_infer compute_output cache_hit cache_miss"
_DATA: Members = {"type": "array", "items": {}, "description": "The elements, flat or nested, in row-major order."}

SCHEMAS: Members = {
    "ServerMetadata": _object("name version extensions", name=_TEXT, version=_TEXT, extensions=_array(_TEXT)),
    "TensorMetadata": _object(
        "name datatype shape",
        name=_TEXT,
        datatype=_DATATYPE,
        shape=_SHAPE,
        parameters={
            **_object("scale zero_point", scale={"type": "number"}, zero_point={"type": "integer"}),
            "description": "For a quantized tensor: real = scale * (stored - zero_point), which is the result of "
            "`dequantize`.",
        },
    ),
    "ModelMetadata": _object(
        "name versions platform inputs outputs",
        name=_TEXT,
        versions=_array(_TEXT),
        platform=_TEXT,
        inputs=_array(_ref("TensorMetadata")),
        outputs=_array(_ref("TensorMetadata")),
        parameters={
            **_PARAMETERS,
            "description": "If known: `labels`, and the preprocessing of pictures: `mean`, `std`, `resize` and "
            "`layout`.",
        },
    ),
    "ModelConfig": _object(
        "name platform backend max_batch_size input output",
        name=_TEXT,
        platform=_TEXT,
        backend=_TEXT,
        max_batch_size={
            **_COUNT,
            "description": "The largest batch that the model is built for; 0 if its inputs have no batch dimension.",
        },
        input=_array(_ref("TensorConfig")),
        output=_array(_ref("TensorConfig")),
        instance_group=_array(
            _object("name kind count", name=_TEXT, kind=_TEXT, count=_COUNT),
            "The number of predictions that run at the same time.",
        ),
        dynamic_batching={"type": "object", "description": "The queue's batches, delay, priorities, timeout and size."},
        parameters={
            "type": "object",
            "description": "`threads`: the number of threads that share a prediction; 0 for one per core.",
        },
    ),
    "TensorConfig": _object(
        "name data_type dims",
        name=_TEXT,
        data_type={"type": "string", "examples": ["TYPE_UINT8"]},
        dims=_array(_COUNT, "The shape; without its first dimension if that is the batch."),
    ),
    "Duration": {
        **_object("count ns", count=_COUNT, ns=_COUNT),
        "description": "The number of events, and their total time in nanoseconds.",
    },
    "ModelStatistics": _object(
        "name version last_inference inference_count execution_count inference_stats batch_stats",
        name=_TEXT,
        version=_TEXT,
        last_inference={**_COUNT, "description": "Milliseconds since the epoch; 0 if there was none."},
        inference_count={**_COUNT, "description": "The number of samples that were computed."},
        execution_count={**_COUNT, "description": "The number of computations, each of one batch or one sample."},
        inference_stats=_object(_STAGES, **{stage: _ref("Duration") for stage in _STAGES.split()}),
        batch_stats=_array(
            _object(
                "batch_size compute_input compute_infer compute_output",
                batch_size=_COUNT,
                compute_input=_ref("Duration"),
                compute_infer=_ref("Duration"),
                compute_output=_ref("Duration"),
            )
        ),
    ),
    "ModelsStatistics": _object("model_stats", model_stats=_array(_ref("ModelStatistics"))),
    "IndexedModel": _object(
        "name version state reason",
        name=_TEXT,
        version=_TEXT,
        state={"type": "string", "enum": [state.value for state in ModelState]},
        reason={**_TEXT, "description": "The reason that it is not ready."},
    ),
    "InferTensor": _object(
        "name datatype shape",
        name=_TEXT,
        datatype=_DATATYPE,
        shape=_SHAPE,
        parameters={
            **_PARAMETERS,
            "description": "For an input: `binary_data_size`, the number of its raw bytes after the JSON.",
        },
        data=_DATA,
    ),
    "RequestedOutput": _object(
        "name",
        name=_TEXT,
        parameters={
            **_PARAMETERS,
            "description": "`binary_data`: send the output as raw bytes after the JSON. `dequantize`: send real "
            "values, FP32. `classification`: send only this number of its greatest elements, as text.",
        },
    ),
    "InferRequest": _object(
        "inputs",
        id=_TEXT,
        parameters={
            **_PARAMETERS,
            "description": "`binary_data_output`: `binary_data` for every output. `dequantize`: the same for every "
            "output. `priority`: 1 is served first; 0 means the middle level. `timeout`: the number "
            "of microseconds within which the prediction has to begin.",
        },
        inputs=_array(_ref("InferTensor")),
        outputs=_array(_ref("RequestedOutput"), "The requested outputs; by default all of them."),
    ),
    "InferResponse": _object(
        "model_name outputs",
        id=_TEXT,
        model_name=_TEXT,
        model_version=_TEXT,
        parameters=_PARAMETERS,
        outputs=_array(_ref("InferTensor")),
    ),
}
_TIMING = (
    "The milliseconds spent in `queue`, `batch` and `infer`, and `total` since the last byte of the request arrived."
)


def _json(schema: Members) -> Members:
    return {"content": {"application/json": {"schema": schema}}}


def _operation(id: str, summary: str, description: str, answer: Members, *parameters: Members) -> Members:
    operation = {
        "tags": [TAG["name"]],
        "operationId": id,
        "summary": summary,
        "description": description,
        "parameters": list(parameters),
        "responses": {"200": {"description": "OK", **_json(answer)}},
    }
    return {name: value for name, value in operation.items() if value}


def _parameter(name: str, location: str, schema: Members, description: str = "") -> Members:
    parameter = {
        "name": name,
        "in": location,
        "required": location == "path",
        "schema": schema,
        "description": description,
    }
    return {member: value for member, value in parameter.items() if value != ""}


_MODEL = _parameter("model", "path", _TEXT)
_VERSION = _parameter("version", "path", _TEXT, "A version number or an alias: `stable`, `latest`, or one of your own.")
_AFFINITY = _parameter(
    "Octet-Affinity", "header", _TEXT, "During a canary, requests with the same value are answered by the same version."
)
_HEADER_LENGTH = _parameter(
    "Inference-Header-Content-Length",
    "header",
    {"type": "integer", "minimum": 0},
    "The length of the JSON in bytes, if raw tensors follow it. 0 means that there is no JSON: the "
    "body is the model's only input, as raw elements or as a picture.",
)
_TIMEOUT = _parameter(
    "Octet-Timeout-Ms",
    "header",
    {"type": "integer", "minimum": 0},
    "The number of milliseconds after the request's arrival within which the prediction has to "
    "begin; otherwise the status is 504. The request's parameter `timeout` does the same in "
    "microseconds; the shorter one applies.",
)
_RAW: Members = {"type": "string", "format": "binary"}
_INFER_BODY: Members = {
    "required": True,
    "content": {
        "application/json": {"schema": _ref("InferRequest")},
        "application/octet-stream": {"schema": _RAW},
        **{f"image/{each}": {"schema": _RAW} for each in ("jpeg", "png", "webp", "bmp", "gif")},
        "multipart/form-data": {
            "schema": {"type": "object", "properties": {"file": _RAW}, "required": ["file"]},
        },
    },
}


def _model_paths(suffix: str, *path: Members) -> Members:
    """The operations on a model, or on one version of it."""
    root = "/v2/models/{model}" + ("/versions/{version}" if suffix else "")
    infer = _operation(
        f"infer{suffix}",
        "Predict",
        "The input of an image model may be a JPEG, PNG, WebP, BMP or GIF, sent as a BYTES tensor of shape [1], as the "
        "whole body, or as the only file of a form. The status is 429 with `Retry-After` if too many requests are "
        "waiting, and 503 if no verified build of the model runs here.",
        _ref("InferResponse"),
        *path,
        _HEADER_LENGTH,
        _AFFINITY,
        _TIMEOUT,
    )
    infer["requestBody"] = _INFER_BODY
    infer["responses"]["200"]["content"]["application/octet-stream"] = {"schema": _RAW}
    infer["responses"]["200"]["headers"] = {"Server-Timing": {"schema": _TEXT, "description": _TIMING}}
    ready = _operation(
        f"model_ready{suffix}",
        "Check whether a model is ready",
        "Loads the model if it is not loaded, so that the next request finds it warm.",
        _object("name ready", name=_TEXT, ready={"type": "boolean"}),
        *path,
    )
    metadata = _operation(
        f"model_metadata{suffix}", "List the inputs and outputs of a model", "", _ref("ModelMetadata"), *path
    )
    config = _operation(
        f"model_config{suffix}", "Get the model configuration in Triton's form", "", _ref("ModelConfig"), *path
    )
    statistics = _operation(
        f"model_statistics{suffix}",
        "Get the statistics of a model",
        "The requests to each version of the model that is loaded in this process.",
        _ref("ModelsStatistics"),
        *path,
    )
    return {
        f"{root}/infer": {"post": infer},
        f"{root}/ready": {"get": ready},
        f"{root}/config": {"get": config},
        f"{root}/stats": {"get": statistics},
        root: {"get": metadata},
    }


def _repository(action: str, description: str) -> Members:
    """The operation that loads or unloads a model."""
    summary = f"{action.capitalize()} a model"
    answer = _object(f"name {action}", name=_TEXT, **{action: {"type": "boolean"}})
    operation = _operation(f"{action}_model", summary, description, answer, _MODEL)
    operation["requestBody"] = _json(_object("", parameters=_PARAMETERS))
    return {f"/v2/repository/models/{{model}}/{action}": {"post": operation}}


def _index() -> Members:
    operation = _operation(
        "repository_index", "List all model versions, and whether they are loaded", "", _array(_ref("IndexedModel"))
    )
    operation["requestBody"] = _json(
        _object("", ready={"type": "boolean", "description": "List only those that are ready."})
    )
    return {"/v2/repository/index": {"post": operation}}


_FLAG: Members = {"type": "boolean"}
PATHS: Members = {
    **_model_paths("", _MODEL),
    **_model_paths("_version", _MODEL, _VERSION),
    "/v2/health/live": {
        "get": _operation("live", "Check whether the server is alive", "", _object("live", live=_FLAG))
    },
    "/v2/health/ready": {
        "get": _operation("ready", "Check whether the server accepts requests", "", _object("ready", ready=_FLAG))
    },
    "/v2/models/stats": {
        "get": _operation(
            "statistics",
            "Get the statistics of all models",
            "The requests to the models that are loaded in this process, or were loaded recently.",
            _ref("ModelsStatistics"),
        )
    },
    **_index(),
    **_repository(
        "load",
        "The first prediction also loads the model. This request retries a failed load at once, and reverts an unload. "
        "The API of a cluster forwards it to all workers that can serve the model.",
    ),
    **_repository(
        "unload",
        "Frees the model's memory in this process, or in all workers of the API's cluster. Requests for it are refused "
        "until it is loaded again.",
    ),
    "/v2": {
        "get": _operation(
            "server_metadata", "Get the server's name, version and extensions", "", _ref("ServerMetadata")
        )
    },
}
