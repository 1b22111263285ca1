"""Reads the tables of models, builds and aliases for the registry. All methods block."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from service.core.digest import Digest
from service.core.errors import NotFound, OctetError
from service.workers.inference.candidates import Candidate, candidates
from service.workers.inference.explain import why_not_ready
from service.workers.inference.ports import Aliases, Builds, Models
from service.workers.inference.routes import Name, Plan, Reference, plan


@dataclass(frozen=True)
class Tables:
    """The tables of models, builds and aliases, as one host needs them.

    Attributes:
        aliases: None if aliases are not used.
        targets: the targets that run here, best first.
    """

    builds: Builds
    models: Models
    aliases: Aliases | None
    targets: Sequence[str]

    def built(self) -> list[Name]:
        """Returns every model that has a build for this host."""
        models = dict.fromkeys(each.name for each in self.models.all_versions())
        return [(model, None) for model in models if self.builds.serving(model, None, self.targets)]

    def plan(self, model: str, reference: Reference) -> Plan:
        """Returns the versions that a reference refers to. Raises `NotFound` if the model, version or alias
        does not exist.
        """
        try:
            return plan(self.aliases, model, reference)
        except NotFound:
            self.models.get(model)  # raises if the model itself does not exist
            raise

    def read(self, model: str, reference: Reference) -> tuple[Plan, Sequence[int]]:
        """Returns the versions that a reference refers to, as `plan`, and all versions, as `versions`."""
        return self.plan(model, reference), tuple(self.versions(model, None))

    def candidates(self, model: str, version: int | None, is_usable: Callable[[Digest], bool]) -> list[Candidate]:
        """Returns the builds that could serve the model, best first."""
        return candidates(self.builds, self.targets, model, version, is_usable)

    def why_not_ready(self, model: str, version: int | None) -> OctetError:
        """Returns why nothing here serves a model."""
        return why_not_ready(self.builds, self.models, model, version, self.targets)

    def versions(self, model: str, reference: Reference) -> list[int]:
        """Returns the versions that have a build for this host, in ascending order. With a reference, returns only the
        versions that the reference names.
        """
        self.models.get(model)
        built = sorted({build.version for build in self.builds.serving(model, None, self.targets)})
        if reference is None:
            return built
        wanted = plan(self.aliases, model, reference)
        if wanted.version is None:
            return built[-1:]
        return [version for version in built if version in (wanted.version, wanted.canary)]

    def check_exists(self, model: str, version: int | None) -> None:
        """Raises `NotFound` if the model or version does not exist."""
        self.models.get(model)
        if version is not None:
            self.models.version(model, version)
