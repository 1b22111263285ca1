"""Tests of the gRPC status of each error."""

from __future__ import annotations

import grpc

from service.api.grpc.status import STATUS, StatusCode
from service.core import errors
from service.core.errors import OctetError


def test_every_error_has_a_status() -> None:
    def leaves(kind: type[OctetError]) -> list[type[OctetError]]:
        return [kind] + [leaf for child in kind.__subclasses__() for leaf in leaves(child)]

    for kind in leaves(OctetError):
        assert any(each in STATUS for each in kind.__mro__), kind
    assert {STATUS[kind] for kind in (errors.QueueFull, errors.StorageFull)} == {StatusCode.RESOURCE_EXHAUSTED}


def test_statuses_have_the_numbers_of_the_library() -> None:
    assert {each.name: each.value for each in StatusCode}.items() <= {
        each.name: each.value[0] for each in grpc.StatusCode
    }.items()
