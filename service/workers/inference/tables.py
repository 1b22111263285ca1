"""What the tables of models, builds and aliases say, as the registry asks it. Everything here blocks."""

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
    """The tables, seen from a host.

    Attributes:
        aliases: None where there are none.
        targets: that run here, the best first.
    """

    builds: Builds
    models: Models
    aliases: Aliases | None
    targets: Sequence[str]

    def built(self) -> list[Name]:
        """Every model that has a build for this host."""
        models = dict.fromkeys(each.name for each in self.models.all_versions())
        return [(model, None) for model in models if self.builds.serving(model, None, self.targets)]

    def plan(self, model: str, reference: Reference) -> Plan:
        """Raises `NotFound`: there is no such model, version or alias."""
        try:
            return plan(self.aliases, model, reference)
        except NotFound:
            self.models.get(model)  # it may be the model that there is not
            raise

    def candidates(self, model: str, version: int | None, is_usable: Callable[[Digest], bool]) -> list[Candidate]:
        """The builds that could answer, the best first."""
        return candidates(self.builds, self.targets, model, version, is_usable)

    def why_not_ready(self, model: str, version: int | None) -> OctetError:
        """Why nothing here answers for a model."""
        return why_not_ready(self.builds, self.models, model, version, self.targets)

    def versions(self, model: str, reference: Reference) -> list[int]:
        """Those that have a build for this host, in ascending order; of a reference, those that it stands for."""
        self.models.get(model)
        built = sorted({build.version for build in self.builds.serving(model, None, self.targets)})
        if reference is None:
            return built
        wanted = plan(self.aliases, model, reference)
        if wanted.version is None:
            return built[-1:]
        return [version for version in built if version in (wanted.version, wanted.canary)]

    def check_known(self, model: str, version: int | None) -> None:
        """Raises `NotFound`."""
        self.models.get(model)
        if version is not None:
            self.models.version(model, version)
