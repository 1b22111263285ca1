"""Schemas of the matrix of pools, and of the comparison between pools."""

from __future__ import annotations

from pydantic import Field

from service.api.control.wire.base import Wire
from service.core.verification.agreement import Outcome
from service.workers.routing.matrix import CellState


class MatrixRow(Wire):
    """A pool, or a target that the model is built for but no pool serves. Figures that were not measured are null."""

    pool: str | None = Field(description="The pool; null if no worker of the target is running.")
    target: str
    workers: int = Field(description="The number of workers that are ready.")
    capacity: int = Field(description="The total number of calls that these workers compute at the same time.")
    loaded: int = Field(description="The number of these workers that have the version in memory.")
    state: CellState = Field(
        description="`ready`: built and verified; `unverified`: built, but no worker of the target has verified it "
        "yet, so it is not served; `refused`: a worker computed other outputs than the build, so it is not served; "
        "`different`: its outputs differ from the reference runtime's, so it is not served; `none`: no build was "
        "requested, or its artifact is lost."
    )
    build: str | None = Field(
        description="The id of the build that is served; if there is none, of the most recently requested build."
    )
    error: str | None = Field(description="The code of that build's error, if it failed.")
    artifact: str | None = Field(description="The digest of that build's artifact.")
    numerics: str | None
    verified: bool | None = Field(
        description="True if every value equals the canonical form's, and no difference from the reference runtime is "
        "larger than the numerics mode documents."
    )
    outcome: Outcome | None = Field(
        None,
        description="The result of the comparison with the reference runtime at the build: `equal`, `documented`, "
        "`different`, `own_only` or `not_checked`.",
    )
    accepted: bool = Field(False, description="True if the artifact is served although it is `different`.")
    checked: str | None = Field(description="A sentence on what the outputs were compared with, and the result.")
    measuring: bool = Field(
        description="True if a worker of the pool, or any worker of the target, is about to verify and measure it."
    )
    measured: bool = Field(description="True if a worker of the pool has verified and measured it, or is about to.")
    machine: str | None = Field(
        description="The machine on which the times were measured: that of a worker of the pool; or else of another "
        "worker of the target; or else of the build."
    )
    threads: int | None = Field(description="The number of threads that shared a call.")
    p50_s: float | None = Field(description="The median time of a call of the model, in seconds.")
    p99_s: float | None = Field(description="The time within which 99 % of the calls finish, in seconds.")
    per_s: float | None = Field(description="The number of calls per second, each after the end of the one before.")
    peak_percent: float | None = Field(
        description="The kernels' multiply-accumulate rate, in percent of the machine's peak."
    )
    memory_bytes: int | None = Field(description="The memory of the code, the constants and one call.")
    cost_per_million: float | None = Field(
        description="The cost of a million predictions, in the currency of `pool_prices`: price per hour / 3600 / "
        "`per_s` * 1000000 / calls that one worker computes at the same time. That number is `capacity` / `workers` "
        "for calls of one thread, fewer for calls of more `threads` but at least one, and one on a GPU. This assumes "
        "that workers are always busy and that calls do not slow each other down. If `per_s` is unknown, 1 / `p50_s` "
        "is used instead."
    )


class Matrix(Wire):
    name: str
    version: int
    rows: list[MatrixRow] = Field(description="The pools by name, then targets without one.")


class Different(Wire):
    """An output that differs from the reference's."""

    output: str
    different: int | None = Field(
        description="The number of elements whose bytes differ; null if the shape or type differs, or an output is "
        "missing."
    )
    first: int | None = Field(description="The index of the first such element, in C order; null in the same cases.")


class PoolAnswer(Wire):
    """The result of one worker of a pool."""

    pool: str
    target: str
    worker: str
    problem: str | None = Field(description="The reason, if it did not answer.")
    differences: list[Different] = Field(description="The outputs that differ from the reference's.")


class Comparison(Wire):
    """The answers of all pools to one request."""

    name: str
    version: int
    equal: bool | None = Field(
        description="True if all results are the same bytes; null if fewer than two pools answered."
    )
    reference: str | None = Field(description="The pool that the others are compared with: the first that answered.")
    answers: list[PoolAnswer] = Field(description="The results, sorted by pool and target.")
