"""Models and their versions on the command line: `NAME`, `NAME:VERSION` or `NAME@ALIAS`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from service.cli.completion import complete_model
from service.core.errors import InvalidInput, NotFound

if TYPE_CHECKING:
    from service.cli.client import Client

_MODEL = re.compile(
    r"(?P<name>([a-z0-9][a-z0-9-]{0,30}~)?[a-z0-9][a-z0-9._-]{0,62})"
    r"(:(?P<version>[1-9][0-9]{0,8})|@(?P<alias>[a-z][a-z0-9._-]{0,62}))?"
)
FORM = "MODEL[:VERSION|@ALIAS]"
ModelArgument = Annotated[
    str,
    typer.Argument(
        metavar=FORM,
        help="A model as octet models lists it, by default its newest version. @ALIAS is the version that the alias "
        "points to now.",
        autocompletion=complete_model,
    ),
]


@dataclass(frozen=True)
class ModelVersion:
    """A model, and at most one of `version` and `alias`."""

    name: str
    version: int | None = None
    alias: str | None = None

    @staticmethod
    def parse(text: str) -> ModelVersion:
        """Parses `mobilenet`, `mobilenet:3` or `mobilenet@stable`.

        Raises:
            InvalidInput: `text` has none of these forms.
        """
        found = _MODEL.fullmatch(text)
        if found is None:
            raise InvalidInput(f"{text!r} is not a model", hint=f"{FORM}, such as mobilenet:3 or mobilenet@stable")
        return ModelVersion(found["name"], int(found["version"]) if found["version"] else None, found["alias"])

    def resolve(self, client: Client) -> tuple[str, int | None]:
        """Returns the name and the version; the version is None if the text names neither a version nor an alias.

        Raises:
            NotFound: the model does not exist, or has no such alias.
        """
        if self.alias is None:
            return self.name, self.version
        aliases: list[dict[str, Any]] = client.model(self.name)["aliases"]
        for each in aliases:
            if each["name"] == self.alias:
                return self.name, int(each["version"])
        known = ", ".join(each["name"] for each in aliases)
        raise NotFound(
            f"model {self.name!r} has no alias {self.alias!r}",
            hint=f"its aliases are {known}" if known else f"octet promote {self.name}:VERSION --alias {self.alias}",
        )


def resolve_model(client: Client, text: str) -> tuple[str, int | None]:
    """Parses `NAME`, `NAME:VERSION` or `NAME@ALIAS`, and returns the name and version as `ModelVersion.resolve` does.

    Raises:
        InvalidInput: `text` has none of these forms.
        NotFound: the model does not exist, or has no such alias.
    """
    return ModelVersion.parse(text).resolve(client)
