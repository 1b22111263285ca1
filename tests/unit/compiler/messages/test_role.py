"""The parent reads and checks the result of a child."""

from __future__ import annotations

import pytest

from service.compiler.children.child import ROLES
from service.compiler.messages import building, checking, running
from service.compiler.messages.building import BUILD
from service.compiler.messages.message import Malformed
from service.compiler.messages.role import Role
from service.core.errors import BuildFailed


def test_a_malformed_result_fails_the_build() -> None:
    with pytest.raises(BuildFailed, match="the build process returned a malformed result: kernels is") as error:
        BUILD.read_result({}, "codegen")
    assert error.value.stage == "codegen"
    assert isinstance(error.value.__cause__, Malformed)


def test_every_role_has_a_function() -> None:
    roles = [each for module in (building, checking, running) for each in vars(module).values() if type(each) is Role]
    assert {role.name for role in roles} <= ROLES.keys()
