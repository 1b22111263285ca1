"""Tests that subjects of commits have the form that CONTRIBUTING.md states."""

from __future__ import annotations

import pytest

from scripts.commit_subject import problem


@pytest.mark.parametrize(
    "subject",
    [
        "registry: do not reload an evicted model",
        "api, cli: name the tenant of a refused push",
        "kernels/simd: split a row",
        "Merge branch 'main'",
    ],
)
def test_accepted(subject: str) -> None:
    assert problem(subject) is None


@pytest.mark.parametrize(
    ("subject", "reason"),
    [
        ("Add a thing", "must have the form"),
        ("registry: Add a thing", "must have the form"),
        ("registry: do not reload a model.", "must have the form"),
        ("registry: " + "a" * 63, "has 73 characters"),
        ("", "must have the form"),
    ],
)
def test_refused(subject: str, reason: str) -> None:
    assert reason in (problem(subject) or "")
