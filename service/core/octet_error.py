"""The base class of all errors that a user can see; `service.core.errors` has the classes."""

from __future__ import annotations

import inspect
from typing import Any, ClassVar


class OctetError(Exception):
    """Something went wrong.

    Attributes:
        message: the problem, with the wrong value.
        stage: the stage of the build, if the error belongs to one; else None.
        op, tensor: the operator and the tensor that the error is about; None if it is about no single one.
        hint: what the user can do; None without advice.
        retry_after_s: the time after which a retry may succeed; None if a retry does not help.
    """

    code: ClassVar[str] = "error"

    def __init__(
        self,
        message: str | None = None,
        *,
        stage: str | None = None,
        op: str | None = None,
        tensor: str | None = None,
        hint: str | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        """
        Args:
            message: by default the first line of the class's docstring.
            stage: the stage of the build, if the error belongs to one.
            op: the operator that the error is about.
            tensor: the tensor that the error is about.
            hint: what the user can do.
            retry_after_s: the time after which a retry may succeed.
        """
        self.message = message or inspect.cleandoc(type(self).__doc__ or "").split("\n")[0]
        self.stage, self.op, self.tensor, self.hint = stage, op, tensor, hint
        self.retry_after_s = retry_after_s
        super().__init__(self.message)

    def to_json(self) -> dict[str, Any]:
        """Returns the members that are set, in the form of problem documents and of failed builds."""
        members = {
            "code": self.code,
            "message": self.message,
            "stage": self.stage,
            "op": self.op,
            "tensor": self.tensor,
            "hint": self.hint,
        }
        return {name: value for name, value in members.items() if value is not None}
