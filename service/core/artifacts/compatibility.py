"""Checks that this release can run an artifact, from the versions in the artifact's config.

`service/native/runtime/config.cc` makes the same decision as this module, with the same messages. Any other version is
refused: a call plan that is misread leads to wrong addresses. `tests/conformance/test_artifact_versions.py` tests the
artifacts of every release.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from service.core.errors import CorruptBlob, Unsupported

ABI_VERSION = (
    1  # the version of the interface between a library and the runtime: calling convention and required functions
)
PLAN_VERSION = 1
CONFIG_MEDIA_TYPE = "application/vnd.octet.config.v2+json"
_CONFIG_OF_0_1 = "application/vnd.octet.config.v1+json"

_HINT = "compile the model again with this release, or run the artifact with the release that compiled it"


def check_config_type(media_type: str) -> None:
    """Raises `Unsupported` if a config of this media type was written by an incompatible release."""
    if media_type == _CONFIG_OF_0_1:
        raise _of_0_1()
    if media_type != CONFIG_MEDIA_TYPE:
        raise Unsupported(
            f'the artifact\'s config is of type "{media_type[:128]}", and this release reads {CONFIG_MEDIA_TYPE}',
            hint=_HINT,
        )


def check_versions(config: Mapping[str, Any]) -> None:
    """Checks the ABI version and the plan version of a config.

    Raises:
        Unsupported: the config was written by an incompatible release.
        CorruptBlob: the config does not contain these versions.
    """
    if "abi_version" not in config and "abi" in config:
        raise _of_0_1()
    plan = config.get("plan")
    abi_version, plan_version = config.get("abi_version"), plan.get("version") if isinstance(plan, Mapping) else None
    if type(abi_version) is not int or type(plan_version) is not int:
        raise CorruptBlob("the config lacks its versions")
    if (abi_version, plan_version) != (ABI_VERSION, PLAN_VERSION):
        raise Unsupported(
            f"the artifact is of ABI {abi_version} and plan {plan_version}, and this release runs ABI {ABI_VERSION} and"
            f" plan {PLAN_VERSION}",
            hint=_HINT,
        )


def check_plan(plan: Mapping[str, Any], known: frozenset[str]) -> None:
    """Checks the version and the member names of a call plan.

    Raises:
        Unsupported: the plan is of another version, or has a member that is not in `known`. This release would ignore
            that member, and so run the model wrongly.
    """
    if plan["version"] != PLAN_VERSION:
        raise Unsupported(
            f"the call plan is of version {plan['version']}, and this release runs version {PLAN_VERSION}", hint=_HINT
        )
    for member in sorted(plan.keys() - known):
        raise Unsupported(
            f'the artifact\'s plan has a member "{str(member)[:64]}", which this release does not know', hint=_HINT
        )


def _of_0_1() -> Unsupported:
    return Unsupported(
        f"the artifact is of release 0.1, which ran models by TVM, and this release runs ABI {ABI_VERSION} and plan"
        f" {PLAN_VERSION}",
        hint=_HINT,
    )
