"""The parent reads and checks the result of a child."""

from __future__ import annotations

import pytest

from service.compiler.children.child import ROLES
from service.compiler.messages import building, checking, running
from service.compiler.messages.building import BUILD, IMPORT, INSPECT, ImportResult
from service.compiler.messages.message import Malformed
from service.compiler.messages.role import Role
from service.core.errors import BuildFailed
from service.core.models.facts import Facts
from service.core.models.signature import ModelSignature
from service.core.verification.vectors import MOST_PROBES


def test_a_malformed_result_fails_the_build() -> None:
    with pytest.raises(BuildFailed, match="the build process returned a malformed result: kernels is") as error:
        BUILD.read_result({}, "codegen")
    assert error.value.stage == "codegen"
    assert isinstance(error.value.__cause__, Malformed)


def test_a_result_of_another_class_that_cannot_be_read_is_malformed() -> None:
    with pytest.raises(BuildFailed, match=r"malformed result: facts cannot be read$"):
        INSPECT.read_result({"facts": {"signature": 1}})


def test_a_description_is_either_facts_or_an_outline() -> None:
    with pytest.raises(BuildFailed, match="facts and outline are missing"):
        INSPECT.read_result({})


def test_the_number_of_chosen_inputs_is_limited() -> None:
    signature = ModelSignature((), ())
    facts = Facts("tflite", signature, {}, 0, 0, 0, None, None)
    result = ImportResult("", signature, "tflite", facts, MOST_PROBES)
    assert IMPORT.read_result(result.to_json()) == result
    with pytest.raises(BuildFailed, match=f"probes is more than {MOST_PROBES}"):
        IMPORT.read_result({**result.to_json(), "probes": MOST_PROBES + 1})


def test_every_role_has_a_function() -> None:
    roles = [each for module in (building, checking, running) for each in vars(module).values() if type(each) is Role]
    assert {role.name for role in roles} <= ROLES.keys()
