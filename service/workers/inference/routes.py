"""The loaded models that serve a name: one version of a model, or two versions that each get a part of the requests."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from service.core.errors import NotFound
from service.core.models.alias import LATEST, STABLE, Alias
from service.workers.data_plane import orders
from service.workers.inference.ports import Aliases
from service.workers.inference.served import Served

Reference = int | str | None  # a version, an alias, or None for requests without a version
Name = tuple[str, Reference]  # a model, and which version of it


@dataclass(frozen=True)
class Plan:
    """The versions that are to serve a name.

    Attributes:
        version: None means the newest that is ready.
        canary: another version, which gets `percent` of the requests. None if the name has no canary.
    """

    version: int | None
    canary: int | None = None
    percent: int = 0


def plan(aliases: Aliases | None, model: str, reference: Reference) -> Plan:
    """Returns the versions that `reference` refers to. Without a version, this is the alias `stable`, or the newest if
    `stable` is not set.

    Raises:
        NotFound: the alias does not exist.
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
        f"model {model!r} has no alias {reference!r}", hint=f"octet promote {model}:VERSION --alias {reference} sets it"
    )


@dataclass(frozen=True)
class Route:
    """The loaded models of a plan.

    Attributes:
        main: answers the requests that the canary does not get.
        percent: the percentage of requests that the canary gets.
        versions: all versions that the model has.
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
        """Returns the route in the form that the data plane receives."""
        return orders.Named(
            model,
            "" if version is None else str(version),
            self.main.key,
            [str(number) for number in self.versions],
            self.canary.key if self.canary else 0,
            self.percent,
        )


class Routes(dict[Name, Route]):
    """The routes by name. Calls `changed` after every change.

    Attributes:
        earlier: the routes that an earlier control plane set, of names that have not been resolved yet.
    """

    def __init__(self, changed: Callable[[], None]) -> None:
        super().__init__()
        self._changed = changed
        self.earlier: dict[Name, orders.Named] = {}

    def __setitem__(self, name: Name, route: Route) -> None:
        super().__setitem__(name, route)
        self._changed()

    def __delitem__(self, name: Name) -> None:
        super().__delitem__(name)
        self._changed()

    def drop(self, name: Name) -> Iterable[Served]:
        """Removes a name, and returns the models that served it."""
        route = super().pop(name, None)
        self._changed()
        return route or ()

    def keep_earlier(self, present: Collection[int], routes: Mapping[Name, orders.Named]) -> None:
        """Adds routes that an earlier control plane set, and removes those whose model is not loaded any more.

        Args:
            present: the keys of the loaded models.
        """
        self.earlier = {name: each for name, each in self.earlier.items() if each.main in present} | dict(routes)

    def names_of(self, served: Served) -> list[Name]:
        """Returns the names that a model serves, alone or with a canary."""
        return [name for name, route in self.items() if served in route]

    def named(self) -> list[orders.Named]:
        """Returns all routes in the form that the data plane receives, with the earlier routes of other names."""
        named = [route.named(*name) for name, route in self.items()]
        return named + [earlier for name, earlier in self.earlier.items() if name not in self]
