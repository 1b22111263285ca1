"""A role of a child process, and the types of its request and its result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from service.compiler.messages.message import Malformed, Message
from service.core.errors import BuildFailed

Request = TypeVar("Request", bound=Message)
Result = TypeVar("Result", bound=Message)


@dataclass(frozen=True)
class Empty(Message):
    """The result of a role whose only results are files."""


@dataclass(frozen=True)
class Role(Generic[Request, Result]):
    """A role.

    Attributes:
        name: the role's name in `children.child.ROLES`.
    """

    name: str
    request: type[Request]
    result: type[Result]

    def read_result(self, members: Mapping[str, Any], stage: str | None = None) -> Result:
        """Reads the result that a child of this role returned.

        Args:
            stage: the stage of the build, which is added to the error.

        Raises:
            BuildFailed: the result is malformed. The cause is `Malformed`.
            OctetError: raised by `from_json` of a member's class.
        """
        try:
            return self.result.from_json(members)
        except Malformed as error:
            raise BuildFailed(f"the {self.name} process returned a malformed result: {error}", stage=stage) from error
