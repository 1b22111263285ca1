"""What each pool has of a version of a model."""

from __future__ import annotations

from pydantic import Field

from service.api.control.wire.base import Wire
from service.core.agreement import Outcome
from service.workers.routing.matrix import CellState


class MatrixRow(Wire):
    """A pool, or a target that the model has builds for and no pool is there for. What was not measured is null."""

    pool: str | None = Field(description="The pool; null where no worker of the target is there.")
    target: str
    workers: int = Field(description="The number of workers that are ready.")
    capacity: int = Field(description="How many calls these compute at a time, together.")
    loaded: int = Field(description="The number of these workers that have the version in memory.")
    state: CellState = Field(
        description="`ready`: built and verified; `unverified`: built, but no worker of the target has verified it "
        "yet, so it is not served; `refused`: it does not compute there what it should, so it is not served; "
        "`different`: its outputs differ from those of its reference runtime, so it is not served; `none`: "
        "no build was asked for, or its artifact is lost."
    )
    build: str | None = Field(
        description="The id of the build that answers; where none does, of the build that was asked for last."
    )
    error: str | None = Field(description="The code of that build's error, if it failed.")
    artifact: str | None = Field(description="The digest of that build's artifact.")
    numerics: str | None
    verified: bool | None = Field(
        description="True if every value equalled the canonical form's and no difference from the reference runtime is "
        "beyond what the numerics mode documents."
    )
    outcome: Outcome | None = Field(
        None,
        description="The result of the comparison with the reference runtime where the artifact was built: `equal`, "
        "`documented`, `different`, `own_only` or `not_checked`.",
    )
    accepted: bool = Field(False, description="True if the artifact is served although it is `different`.")
    checked: str | None = Field(description="What the outputs were compared with, and the result, in a sentence.")
    measuring: bool = Field(
        description="Whether a worker of the pool, or any of the target, is to verify and measure it."
    )
    measured: bool = Field(description="Whether a worker of the pool has verified and measured it, or is to.")
    machine: str | None = Field(
        description="The machine that the times were measured on: of a worker of the pool; if none has, of another of "
        "the target; otherwise the build's."
    )
    threads: int | None = Field(description="The threads that shared a call.")
    p50_s: float | None = Field(description="The median time of a call of the model, in seconds.")
    p99_s: float | None = Field(description="The time that one of a hundred calls takes longer than, in seconds.")
    per_s: float | None = Field(description="The number of calls that are answered in a second, one after the other.")
    peak_percent: float | None = Field(
        description="The rate of the kernels, in percent of what that machine multiplies at most."
    )
    memory_bytes: int | None = Field(description="The memory of the code, the constants and one call.")
    cost_per_million: float | None = Field(
        description="The cost of a million predictions, in the currency of `pool_prices`: price per hour / 3600 / "
        "`per_s` * 1000000 / calls that one worker computes at a time. At a time it computes `capacity` / `workers` "
        "calls of one thread; fewer of more `threads`, but at least one; a card computes one. Workers are taken to be "
        "always busy, and calls not to slow each other down. Where `per_s` is not known, it is 1 / `p50_s`."
    )


class Matrix(Wire):
    name: str
    version: int
    rows: list[MatrixRow] = Field(description="The pools by name, then targets without one.")


class Different(Wire):
    """An output that is not the reference's."""

    output: str
    different: int | None = Field(
        description="The number of elements whose bytes differ; null where shape or type do, or one is not there."
    )
    first: int | None = Field(description="The first of these elements, counted in C order; likewise.")


class PoolAnswer(Wire):
    """What a worker of a pool answered."""

    pool: str
    target: str
    worker: str
    problem: str | None = Field(description="The reason, if it did not answer.")
    differences: list[Different] = Field(description="The outputs that are not those of the reference.")


class Comparison(Wire):
    """The answers of all pools to one request."""

    name: str
    version: int
    equal: bool | None = Field(
        description="Whether all answers were the same bytes; null where fewer than two pools answered."
    )
    reference: str | None = Field(description="The pool that the others are compared with: the first that answered.")
    answers: list[PoolAnswer] = Field(description="By pool and target.")
