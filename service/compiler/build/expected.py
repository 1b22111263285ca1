"""Expected answers, in files that children wrote, and whose they are. This process does not read those files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from service.core.vectors import CHOSEN
from service.core.witnesses import Witness

_MESSAGE_CHARACTERS = 250


@dataclass(frozen=True)
class Expected:
    """A witness and its answers.

    Attributes:
        file: of its answers; None where it gave none.
        probes: the file of its answers to the inputs that the oracle chose; None like `file`.
        reason: why it gave none.
        refused: number of an input that it did not accept -> its message.
    """

    witness: Witness
    file: Path | None = None
    probes: Path | None = None
    reason: str = ""
    refused: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Answers:
    """The answers that an artifact is compared with.

    Attributes:
        kinds: of the generated inputs (`core.vectors.sample_kinds`), of as many as there are at most.
        witnesses: the one that decides (our own canonical form), then the source framework's runtime, if there is one.
        sessions: that runtime, set otherwise.
        no_witness: why `witnesses` has our own alone, where it does.
        reached: what the operators met in the inputs, as the oracle's process reported it.
    """

    kinds: Sequence[str]
    witnesses: Sequence[Expected]
    sessions: Sequence[Expected] = ()
    no_witness: str = ""
    reached: Mapping[str, Any] = field(default_factory=dict)

    @property
    def has_probes(self) -> bool:
        """True if the oracle chose inputs."""
        return CHOSEN in self.kinds


def said_by(witness: Witness, file: Path, probes: Path, said: Mapping[str, Any], samples: int) -> Expected:
    """Reads the result of a session from its child's answer (`checking_roles.reference_role`).

    Raises:
        LookupError, TypeError, ValueError: the child says something else.
    """
    if "error" in said:
        return Expected(witness, reason=f"refused the model: {_line(said['error'])}")
    refused = {int(number): _line(message) for number, message in said["refused"].items()}
    if not all(0 <= number < samples for number in refused):
        raise ValueError(f"there are no such inputs: {sorted(refused)}")
    if not said["answered"]:
        return Expected(witness, reason=f"refused every input: {next(iter(refused.values()), '')}", refused=refused)
    return Expected(witness, file, probes, refused=refused)


def _line(message: Any) -> str:
    """A framework's message in one line, which a terminal may show."""
    line = " ".join(str(message).split())
    return "".join(character for character in line if character.isprintable())[:_MESSAGE_CHARACTERS]
