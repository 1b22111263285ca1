"""Tests of parsing untrusted envelopes and statements."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from service.core.builds.build import BuildInputs
from service.core.digest import Digest, canonical_json
from service.core.errors import InvalidInput
from service.core.provenance import Envelope, Provenance
from service.core.provenance.envelope import MOST_BYTES, Signature, pre_authentication_encoding

ARTIFACT, SOURCE = Digest("sha256:" + "a" * 64), Digest("sha256:" + "b" * 64)
INPUTS = BuildInputs(SOURCE, "x86-64-v3", "litert-reference", {"tvm": "0.27", "passes": "a,b"}, {"batch": 8})
PROVENANCE = Provenance(
    ARTIFACT, INPUTS, "https://example.org/builder", "0.1.0", "2026-01-01T00:00:00Z", "2026-01-01T00:00:09Z",
    {"conv": [4, 2]}, {"link": 0.5},
)  # fmt: skip
GOOD = {"payloadType": "t", "payload": "e30=", "signatures": [{"keyid": "k", "sig": "AAAA"}]}


def test_the_encoding_is_that_of_the_protocol_s_example() -> None:
    assert pre_authentication_encoding("http://example.com/HelloWorld", b"hello world") == (
        b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"
    )


def test_an_envelope_survives_its_bytes() -> None:
    envelope = Envelope("t", b"\0\xff", (Signature("k", b"\1\2"), Signature("", b"\3")))
    assert Envelope.from_bytes(envelope.to_bytes()) == envelope


def test_a_key_id_is_optional() -> None:
    assert Envelope.from_bytes(canonical_json({**GOOD, "signatures": [{"sig": "AAAA"}]})).signatures[0].key_id == ""


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"null",
        b"\xff",
        json.dumps(GOOD).encode("utf-16"),
        json.dumps(GOOD).replace('"payload":', '"payload": "bnVsbA==", "payload":').encode(),
        canonical_json({**GOOD, "payload": "e30"}),
        canonical_json({**GOOD, "payload": "e3 0="}),
        canonical_json({**GOOD, "payload": "é"}),
        canonical_json({**GOOD, "payload": 1}),
        canonical_json({**GOOD, "payloadType": "a\x1b[2J"}),
        canonical_json({**GOOD, "signatures": []}),
        canonical_json({**GOOD, "signatures": [{"sig": "AAAA"}] * 17}),
        canonical_json({**GOOD, "signatures": {"sig": "AAAA"}}),
        canonical_json({**GOOD, "signatures": ["AAAA"]}),
        canonical_json({**GOOD, "signatures": [{"sig": base64.b64encode(bytes(600)).decode()}]}),
        canonical_json({**GOOD, "more": "x" * MOST_BYTES}),
        b"[" * 100_000,
        b'{"payload": NaN}',
        b'{"payload": ' + b"9" * 10_000 + b"}",
    ],
)
def test_malformed_envelopes_are_refused(data: bytes) -> None:
    with pytest.raises(InvalidInput):
        Envelope.from_bytes(data)


def test_a_statement_survives_its_bytes() -> None:
    assert Provenance.from_bytes(PROVENANCE.to_bytes(), ARTIFACT) == PROVENANCE


def test_a_statement_has_the_form_that_other_tools_read() -> None:
    statement = json.loads(PROVENANCE.to_bytes())
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    assert statement["subject"] == [{"digest": {"sha256": "a" * 64}}]
    assert statement["predicateType"] == "https://slsa.dev/provenance/v1"
    dependencies = statement["predicate"]["buildDefinition"]["resolvedDependencies"]
    assert [each["name"] for each in dependencies] == ["model", "tuning log"]


def test_unknown_members_are_ignored() -> None:
    statement = json.loads(PROVENANCE.to_bytes())
    statement["predicate"]["runDetails"]["metadata"]["invocationId"] = "x"
    assert Provenance.from_bytes(canonical_json(statement), ARTIFACT) == PROVENANCE


CHANGES: dict[str, tuple[tuple[str | int, ...], Any]] = {
    "type": (("_type",), "https://in-toto.io/Statement/v0.1"),
    "predicate": (("predicateType",), "https://slsa.dev/provenance/v0.2"),
    "subject": (("subject", 0, "digest", "sha256"), "c" * 64),
    "upper case": (("subject", 0, "digest", "sha256"), "A" * 64),
    "algorithm": (("subject", 0, "digest"), {"sha512": "a" * 128}),
    "no subject": (("subject",), []),
    "many subjects": (("subject",), [{"digest": {"sha256": "a" * 64}}] * 65),
    "build type": (("predicate", "buildDefinition", "buildType"), "https://example.org/other"),
    "source": (("predicate", "buildDefinition", "externalParameters", "source"), "sha256:" + "c" * 64),
    "tiles": (("predicate", "buildDefinition", "internalParameters", "tiles"), {"conv": [4, 4]}),
    "control": (("predicate", "runDetails", "builder", "id"), "https://example.org/\x1b[31m"),
    "number": (("predicate", "runDetails", "builder", "id"), 7),
    "stage": (("predicate", "runDetails", "metadata", "octet_stages_s"), {"link": "long"}),
}


@pytest.mark.parametrize("change", CHANGES)
def test_malformed_and_other_statements_are_refused(change: str) -> None:
    (*path, last), value = CHANGES[change]
    statement = json.loads(PROVENANCE.to_bytes())
    position: Any = statement
    for step in path:
        position = position[step]
    position[last] = value
    with pytest.raises(InvalidInput):
        Provenance.from_bytes(canonical_json(statement), ARTIFACT)
