"""Who answers for a name: one loaded model, or two versions of it that share the requests."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from service.core.alias import LATEST, STABLE, Alias
from service.core.errors import NotFound
from service.workers.data_plane import orders
from service.workers.inference.ports import Aliases
from service.workers.inference.served import Served

Reference = int | str | None  # a version, an alias, or what answers those who name none
Name = tuple[str, Reference]  # a model, and which version of it


@dataclass(frozen=True)
class Plan:
    """What is to answer.

    Attributes:
        version: None for the newest that is ready.
        canary: another version, which gets `percent` of the requests; None for none.
    """

    version: int | None
    canary: int | None = None
    percent: int = 0


def plan(aliases: Aliases | None, model: str, reference: Reference) -> Plan:
    """What is to answer for `reference`: who names no version gets what is stable, if anything was said to be.

    Raises:
        NotFound: there is no such alias.
    """
    if isinstance(reference, int):
        return Plan(reference)
    name = STABLE if reference is None else reference
    alias: Alias | None = None
    if name != LATEST and aliases is not None:
        alias = aliases.find(model, name)
    if alias is not None:
        return Plan(alias.version, alias.canary, alias.canary_percent)
    if reference in (None, LATEST):
        return Plan(None)
    raise NotFound(
        f"model {model!r} has no alias {reference!r}", hint=f"octet promote {model} VERSION --alias {reference} sets it"
    )


@dataclass(frozen=True)
class Route:
    """The loaded models of a plan.

    Attributes:
        main: answers all requests but the canary's.
        percent: the canary's share.
        versions: that there are of the model.
    """

    main: Served
    canary: Served | None = None
    percent: int = 0
    versions: Sequence[int] = ()

    def __iter__(self) -> Iterator[Served]:
        yield self.main
        if self.canary is not None:
            yield self.canary

    def named(self, model: str, version: Reference) -> orders.Named:
        """What the data plane is told of who answers for a name."""
        return orders.Named(
            model,
            "" if version is None else str(version),
            self.main.key,
            [str(number) for number in self.versions],
            self.canary.key if self.canary else 0,
            self.percent,
        )


class Routes(dict[Name, Route]):
    """Who answers, by name. `changed` is called after every change."""

    def __init__(self, changed: Callable[[], None]) -> None:
        super().__init__()
        self._changed = changed

    def __setitem__(self, name: Name, route: Route) -> None:
        super().__setitem__(name, route)
        self._changed()

    def __delitem__(self, name: Name) -> None:
        super().__delitem__(name)
        self._changed()

    def drop(self, name: Name) -> Iterable[Served]:
        """Takes a name out; who answered for it."""
        route = super().pop(name, None)
        self._changed()
        return route or ()
