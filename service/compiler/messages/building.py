"""Requests and results of the roles that import, inspect and build a model (`children.roles`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from service.compiler.messages.message import Count, Malformed, Message
from service.compiler.messages.role import Empty, Role
from service.core.artifacts.call_plan import CallPlan
from service.core.models.facts import Facts, Outline
from service.core.models.ranges import StoredRange
from service.core.models.signature import ModelSignature
from service.core.verification.agreement import Deviation
from service.core.verification.vectors import MOST_PROBES


@dataclass(frozen=True)
class ImportRequest(Message):
    """A request to import or inspect a model file.

    Attributes:
        source: the model file.
        shapes, fixed: the shapes and the fixed values of inputs, as for `importers.auto.import_model`.
        counts: true to add outputs that count the values which the model stores (`qnn.counting`).
    """

    source: Path
    shapes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    counts: bool = False
    fixed: Mapping[str, Sequence[Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class ImportResult(Message):
    """The description of an imported model. The module is in `MODULE_FILE`.

    Attributes:
        source: the digest of the file that was read.
        probes: the number of inputs that the oracle must choose.
        ranges: the tensors whose values are counted, in the order of the last outputs.
    """

    source: str
    signature: ModelSignature
    format: str
    facts: Facts
    probes: Count
    ranges: tuple[StoredRange, ...] = ()

    def __post_init__(self) -> None:
        if self.probes > MOST_PROBES:
            raise Malformed(f"probes is more than {MOST_PROBES}")
        if len(self.ranges) > len(self.signature.outputs):
            raise Malformed("ranges has more elements than the signature has outputs")


@dataclass(frozen=True)
class InspectResult(Message):
    """Either the facts of a model, or the outline of a model that Octet cannot compile."""

    facts: Facts | None = None
    outline: Outline | None = None

    @property
    def description(self) -> Facts | Outline:
        """The facts or the outline.

        Raises:
            Malformed: both are missing.
        """
        found = self.facts or self.outline
        if found is None:
            raise Malformed("facts and outline are missing")
        return found

    def __post_init__(self) -> None:
        _ = self.description


@dataclass(frozen=True)
class PassesRequest(Message):
    """A request to write a model's module after each pass."""

    source: Path
    shapes: Mapping[str, Sequence[int]]
    target: str
    numerics: str
    fixed: Mapping[str, Sequence[Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class PassesResult(Message):
    """The pipeline of passes, as text. The modules are in files."""

    pipeline: str


@dataclass(frozen=True)
class BuildRequest(Message):
    """A request to build an imported module for a target.

    Attributes:
        module: the file of the imported module.
        tiles, rank: explained in `kernels.choices`.
        states: the number of tensors that the model keeps between calls.
        longest: the greatest length of the inputs, if the module's last input is the length; else 0.
        varying: for each other input, the axes that have this length; empty if `longest` is 0.
    """

    module: Path
    target: str
    numerics: str
    batch: int
    tiles: Mapping[str, Sequence[int]]
    rank: int
    states: int
    longest: int = 0
    varying: Sequence[Sequence[int]] = ()


@dataclass(frozen=True)
class TileChoice(Message):
    """The tile of one layer. The kernel `symbol` computes the layer. Equal layers have the same key."""

    key: str
    tile: tuple[int, ...]
    symbol: str


@dataclass(frozen=True)
class BuildResult(Message):
    """The description of a built model. Its object, programs and constants are in files.

    Attributes:
        kernels: the symbols of the kernels whose programs were written.
        coverage: the coverage report; see docs/how-to/reports.md.
        formulas: maps each type of operator to a summary of its formula.
        deviations: the documented deviations of the model's operators from the reference runtime.
    """

    kernels: tuple[str, ...]
    plan: CallPlan
    coverage: Mapping[str, Any]
    tiles: tuple[TileChoice, ...]
    formulas: Mapping[str, str]
    deviations: tuple[Deviation, ...]


@dataclass(frozen=True)
class KernelRequest(Message):
    """A request to compile a kernel for `target`. The build child wrote the kernel's program."""

    program: Path
    symbol: str
    target: str


IMPORT = Role("import", ImportRequest, ImportResult)
INSPECT = Role("inspect", ImportRequest, InspectResult)
PASSES = Role("passes", PassesRequest, PassesResult)
BUILD = Role("build", BuildRequest, BuildResult)
KERNEL = Role("kernel", KernelRequest, Empty)
