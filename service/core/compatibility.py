"""Which artifacts this release runs, by the versions that an artifact says.

`service/native/runtime/config.cc` decides the same, in the same words. Nothing is guessed: a plan that is read wrongly
is a wrong address. `tests/conformance/test_artifact_versions.py` has the artifacts of every release.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from service.core.errors import CorruptBlob, Unsupported

ABI_VERSION = 1  # of a library: how its functions are called, and what they want of the runtime
PLAN_VERSION = 1
CONFIG_MEDIA_TYPE = "application/vnd.octet.config.v2+json"
_CONFIG_OF_0_1 = "application/vnd.octet.config.v1+json"

_HINT = "compile the model again with this release, or run the artifact with the release that compiled it"


def check_config_type(media_type: str) -> None:
    """Raises `Unsupported`, where the config of this media type is of another release."""
    if media_type == _CONFIG_OF_0_1:
        raise _of_0_1()
    if media_type != CONFIG_MEDIA_TYPE:
        raise Unsupported(
            f'the artifact\'s config is of type "{media_type[:128]}", and this release reads {CONFIG_MEDIA_TYPE}',
            hint=_HINT,
        )


def check_versions(config: Mapping[str, Any]) -> None:
    """
    Raises:
        Unsupported: the config is of another release.
        CorruptBlob: it does not say its versions.
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
    """Raises `Unsupported`, where a plan is of another version, or has a member that is not `known`: what that asks for
    would not be done.
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
