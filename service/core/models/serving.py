"""How a model is served: its queue, its batches, its sequences and its share of the machine."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat


class Serving(BaseModel):
    """Settings that can also be set for a single model: in the table `models` of the file, under the model's name."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    queue_size: int = Field(64, gt=0, description="how many requests may wait for a model; more are refused with 429")
    queue_wait_s: float = Field(
        0.5,
        gt=0,
        description="requests are also refused if they would probably wait longer than this; 8 may wait in any case",
    )
    instances: int = Field(0, ge=0, description="concurrent predictions per model; 0: one for each core, up to 8")
    threads: int = Field(0, ge=0, description="threads per prediction; 0: all the cores this process may use")
    priority_levels: int = Field(3, gt=0, le=16, description="number of priorities of requests; 1 is served first")
    predict_timeout_s: float | None = Field(
        None, gt=0, description="default deadline of a request that names none; by default it may wait forever"
    )
    call_limit_s: float = Field(
        1.0,
        ge=0,
        description="a call counts as hung if it takes longer than this, and twenty times longer than the model's "
        "calls usually take; the process that runs it is then restarted, as after a crash; 0: never",
    )
    max_batch: int = Field(0, ge=0, description="most samples to combine in one call; 0: the largest size built")
    max_delay_s: float = Field(0.0, ge=0, description="how long a call waits for more requests to combine")
    max_sequences: int = Field(
        128, gt=0, description="concurrent sequences of a model that keeps state; more are refused with 429"
    )
    promote_least: dict[str, FiniteFloat] = Field(
        {},
        description="the least scores of a version that is promoted, by name: `[promote_least]` with `top1 = 0.7`; "
        "docs/how-to/evaluate.md describes them",
    )
    promote_data: str = Field(
        "",
        pattern=r"^(sha256:[0-9a-f]{64})?$",
        description="the digest of the data set on which these scores have to be measured; empty: any",
    )
    sequence_idle_s: float = Field(60.0, gt=0, description="a sequence ends after this long without requests")
