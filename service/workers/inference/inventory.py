"""Lists every model version and whether it is loaded here: the protocol's repository index."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from service.workers.inference.explain import why_not_ready
from service.workers.inference.loader import Loader
from service.workers.inference.ports import Builds, Models


class ModelState(StrEnum):
    """The states of the protocol's model_repository extension."""

    READY = "READY"
    LOADING = "LOADING"
    UNAVAILABLE = "UNAVAILABLE"


@dataclass(frozen=True)
class Indexed:
    """A model version.

    Attributes:
        reason: the reason why the version is not ready, or that the first request makes it ready; empty if loaded.
    """

    model: str
    version: int
    state: ModelState
    reason: str = ""


class Inventory:
    """Lists model versions from the tables and the loader. Reads tables: call it in a thread."""

    def __init__(
        self,
        builds: Builds,
        models: Models,
        targets: Sequence[str],
        loader: Loader,
        is_unloaded: Callable[[str, int], bool],
    ) -> None:
        """
        Args:
            is_unloaded: returns true if a user has unloaded a version of a model.
        """
        self._builds, self._models, self._targets, self._loader = builds, models, targets, loader
        self._is_unloaded = is_unloaded

    def index(self) -> list[Indexed]:
        """Returns every version of every model, sorted by name, oldest version first."""
        return [self._look(each.name, each.number) for each in self._models.all_versions()]

    def _look(self, model: str, version: int) -> Indexed:
        if self._is_unloaded(model, version):
            return Indexed(model, version, ModelState.UNAVAILABLE, "it was unloaded")
        if any((each.model, each.version) == (model, version) for each in list(self._loader.loaded)):
            return Indexed(model, version, ModelState.READY)
        if self._loader.is_loading(model, version):
            return Indexed(model, version, ModelState.LOADING, "it is being loaded")
        return not_loaded(model, version, self._why_not(model, version))

    def _why_not(self, model: str, version: int) -> str:
        """Returns why a version could not be loaded, or an empty string if it could."""
        serving = self._builds.serving(model, version, self._targets)
        if not serving:
            return why_not_ready(self._builds, self._models, model, version, self._targets).message
        failures = [self._loader.failure(build.artifact) for build in serving if build.artifact]
        if failures and all(failures):
            return str(failures[0])
        return ""


def not_loaded(model: str, version: int, why_not: str) -> Indexed:
    """Returns the state of a version that is not in memory.

    A version that the first request would load counts as ready: `GET /v2/models/NAME/ready` reports the same, and
    clients wait for this state before they send a request.

    Args:
        why_not: the reason why the first request would not load the version; empty if it would load it.
    """
    if why_not:
        return Indexed(model, version, ModelState.UNAVAILABLE, why_not)
    return Indexed(model, version, ModelState.READY, "it is loaded by the first request for it")
