"""The expected outputs of an artifact, and the witness that computed each of them.

Children write the outputs to files. This process does not read those files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from service.compiler.messages.checking import SessionResult
from service.core.verification.vectors import CHOSEN
from service.core.verification.witnesses import Witness

_MESSAGE_CHARACTERS = 250


@dataclass(frozen=True)
class Expected:
    """A witness (the oracle or a runtime) and its outputs.

    Attributes:
        file: the file with the outputs, or None if the witness has no outputs.
        probes: the file with the outputs for the inputs that the oracle chose, or None if it chose none.
        reason: the reason why the witness has no outputs.
        refused: maps the number of each input that the witness rejected to its error message.
    """

    witness: Witness
    file: Path | None = None
    probes: Path | None = None
    reason: str = ""
    refused: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Answers:
    """The expected outputs that an artifact is compared with.

    Attributes:
        kinds: how each input was generated (`vectors.input_kinds`). The number of inputs of a received artifact is not
            known here, so this list may be longer.
        witnesses: first the oracle, whose outputs the artifact must equal; then the source framework's runtime, if it
            defines the numerics mode.
        sessions: the outputs of the same runtime with other settings. They are only reported.
        no_witness: the reason why the oracle is the only witness; empty if there are others.
        reached: the special cases that the operators met, as the oracle's child process reported them.
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


def expected_of(witness: Witness, file: Path, probes: Path, result: SessionResult, samples: int) -> Expected:
    """Returns the expected outputs of one session of the reference runtime.

    Raises:
        ValueError: the result contains the number of an input that does not exist.
    """
    if result.error is not None:
        return Expected(witness, reason=f"refused the model: {_line(result.error)}")
    refused = {int(number): _line(message) for number, message in result.refused.items()}
    if not all(0 <= number < samples for number in refused):
        raise ValueError(f"these inputs do not exist: {sorted(refused)}")
    if not result.answered:
        return Expected(witness, reason=f"refused every input: {next(iter(refused.values()), '')}", refused=refused)
    return Expected(witness, file, probes, refused=refused)


def _line(message: str) -> str:
    """Returns a framework's message as one line that is safe to show in a terminal."""
    line = " ".join(message.split())
    return "".join(character for character in line if character.isprintable())[:_MESSAGE_CHARACTERS]
