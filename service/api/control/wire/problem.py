"""The schema of an error response."""

from __future__ import annotations

from pydantic import BaseModel, Field


class Problem(BaseModel):
    """An RFC 9457 problem document."""

    type: str = Field(examples=["urn:octet:problem:unknown_target"])
    title: str = Field(description="The type of problem, as text; the same for every problem of its `type`.")
    status: int
    detail: str = Field(description="What was wrong with this request.")
    instance: str = Field(description="The path of the request.")
    code: str = Field(description="A stable name for the type of problem.", examples=["unknown_target"])
    stage: str | None = Field(None, description="The stage of the build that failed.")
    op: str | None = Field(None, description="The operator of the model.")
    tensor: str | None = Field(None, description="The tensor of the model.")
    hint: str | None = Field(None, description="What to do next.")
    errors: list[dict[str, str]] | None = Field(None, description="The malformed parts of the request.")
    request_id: str = Field(description="The request's id, as in the header `X-Request-Id` and in the server's log.")
    error: str = Field(description="The same text as `detail`, for clients of the Open Inference Protocol.")
