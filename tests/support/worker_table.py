"""The table of workers that a data plane builds from its orders."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Members = dict[str, Any]


@dataclass
class WorkerTable:
    """The workers and models of all orders so far.

    Attributes:
        workers: worker id -> row.
        models: (name, version) -> row.
    """

    cluster_key: str = ""
    workers: dict[str, Members] = field(default_factory=dict)
    models: dict[tuple[str, str], Members] = field(default_factory=dict)

    def apply(self, order: Mapping[str, Any]) -> None:
        if order["resets"]:
            self.workers, self.models = {}, {}
        self.cluster_key = order["cluster_key"]
        self.workers |= {each["id"]: each for each in order["workers"]}
        self.models |= {(each["model"], each["version"]): each for each in order["models"]}
        for id in order["gone"]:
            del self.workers[id]  # raises an error for an unknown worker, for which no order may be sent
        for model, version in order["forgotten"]:
            del self.models[model, version]
