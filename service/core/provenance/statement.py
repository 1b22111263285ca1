"""The provenance statement of a build: an in-toto Statement with SLSA's provenance as its predicate.

https://slsa.dev/spec/v1.0/provenance
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from service.core.builds.build import BuildInputs
from service.core.digest import Digest, digest_of_json, parse_digest
from service.core.errors import InvalidInput
from service.core.provenance.in_toto import digest_set, parse_digest_set, predicate_of, statement_about
from service.core.strict_json import items, members, text

BUILD_TYPE = "https://octet.dev/build/v1"
_PREDICATE = "https://slsa.dev/provenance/v1"
_MOST_DEPENDENCIES = 64
_TUNING_LOG = "tuning log"


@dataclass(frozen=True)
class Provenance:
    """The provenance of one artifact.

    Attributes:
        artifact: the digest of the artifact's manifest.
        inputs: the inputs that determine the artifact's bytes. A build with equal inputs has the same digest.
        builder: a URI that identifies the machine or service that built the artifact, and its operator.
        builder_version: the version of Octet that built the artifact.
        started_at, finished_at: times in the format of RFC 3339.
        tiles: for each layer, the tile sizes that tuning chose, if the cost model alone would have chosen others.
        stages_s: the duration of each stage.
        tuning_log: the digest of `tiles`; None if there are none.
    """

    artifact: Digest
    inputs: BuildInputs
    builder: str
    builder_version: str
    started_at: str
    finished_at: str
    tiles: Mapping[str, Any] = field(default_factory=dict)
    stages_s: Mapping[str, float] = field(default_factory=dict)

    @property
    def tuning_log(self) -> Digest | None:
        return digest_of_json(self.tiles) if self.tiles else None

    def to_bytes(self) -> bytes:
        """Returns the statement as canonical JSON."""
        predicate = {"buildDefinition": self._definition(), "runDetails": self._run()}
        return statement_about(self.artifact, _PREDICATE, predicate)

    def _definition(self) -> dict[str, Any]:
        inputs = self.inputs
        logs = [{"name": _TUNING_LOG, "digest": digest_set(self.tuning_log)}] if self.tuning_log else []
        return {
            "buildType": BUILD_TYPE,
            "externalParameters": {
                "source": inputs.source,
                "target": inputs.target,
                "numerics": inputs.numerics,
                "options": dict(inputs.options),
            },
            "internalParameters": {"toolchain": dict(inputs.toolchain), "tiles": dict(self.tiles)},
            "resolvedDependencies": [{"name": "model", "digest": digest_set(inputs.source)}, *logs],
        }

    def _run(self) -> dict[str, Any]:
        return {
            "builder": {"id": self.builder, "version": {"octet": self.builder_version}},
            "metadata": {
                "startedOn": self.started_at,
                "finishedOn": self.finished_at,
                "octet_stages_s": dict(self.stages_s),
            },
        }

    @staticmethod
    def from_bytes(data: bytes, artifact: Digest) -> Provenance:
        """Parses a statement about `artifact`. Unknown members are ignored, as in-toto requires.

        Raises:
            InvalidInput: `data` is not such a statement, contradicts itself, or is about another artifact.
        """
        predicate = predicate_of(data, artifact, _PREDICATE, "SLSA provenance, version 1")
        definition = members(predicate.get("buildDefinition"), "buildDefinition")
        if definition.get("buildType") != BUILD_TYPE:
            raise InvalidInput("the provenance describes a build that is not Octet's")
        details = members(predicate.get("runDetails"), "runDetails")
        builder = members(details.get("builder"), "builder")
        metadata = members(details.get("metadata", {}), "metadata")
        internal = members(definition.get("internalParameters", {}), "internalParameters")
        found = Provenance(
            artifact,
            _inputs(definition, internal),
            text(builder.get("id"), "builder.id"),
            text(members(builder.get("version", {}), "builder.version").get("octet", ""), "the builder's version"),
            text(metadata.get("startedOn", ""), "startedOn"),
            text(metadata.get("finishedOn", ""), "finishedOn"),
            members(internal.get("tiles", {}), "tiles"),
            {name: _seconds(value) for name, value in members(metadata.get("octet_stages_s", {}), "stages").items()},
        )
        found._check_dependencies(definition)
        return found

    def _check_dependencies(self, definition: Mapping[str, Any]) -> None:
        """Checks that the resolved dependencies are the model and the tuning log that the parameters name."""
        digests = {}
        for each in items(definition.get("resolvedDependencies"), "resolvedDependencies", _MOST_DEPENDENCIES):
            name = text(members(each, "a dependency").get("name", ""), "a dependency's name")
            digests[name] = parse_digest_set(each, "a dependency")
        if digests.get("model") != self.inputs.source or digests.get(_TUNING_LOG) != self.tuning_log:
            raise InvalidInput("the provenance contradicts itself about the model or the tuning log")


def _inputs(definition: Mapping[str, Any], internal: Mapping[str, Any]) -> BuildInputs:
    external = members(definition.get("externalParameters"), "externalParameters")
    toolchain = members(internal.get("toolchain", {}), "toolchain")
    return BuildInputs(
        parse_digest(text(external.get("source"), "source")),
        text(external.get("target"), "target"),
        text(external.get("numerics"), "numerics"),
        {text(name, "a tool"): text(version, "a version", 1 << 16) for name, version in toolchain.items()},
        members(external.get("options"), "options"),
    )


def _seconds(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidInput("a stage's duration is not a number")
    return float(value)
