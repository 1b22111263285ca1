"""Tests that constants that Python and C++ both define are equal. `scripts.native_tables` generates the larger
tables.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from service.api.access import access
from service.api.ops import metrics
from service.cache import oci
from service.compiler.sandbox import gpus
from service.core.access import tenant
from service.core.artifacts import artifact, call_plan, compatibility
from service.core.cluster import running
from service.core.models.alias import ALIAS_PATTERN
from service.workers.data_plane import frames
from service.workers.data_plane.messages import GRPC_CODES
from service.workers.routing import asking

_NATIVE = Path(__file__).parents[3] / "service" / "native"
_LAUNCH = (*call_plan._MOST_BLOCKS, *call_plan._MOST_THREADS, call_plan.MOST_SHARED_BYTES)
_ALIAS_CHARACTERS = int(ALIAS_PATTERN.split(",")[1].split("}")[0]) + 1  # the pattern describes the first one separately


def _value_of(file: str, name: str) -> Any:
    """Returns the value of a C++ constant whose initializer consists of literals and simple arithmetic."""
    text = re.sub(r"//[^\n]*", "", (_NATIVE / file).read_text())
    initializer = r"(\{[^}]*\}|\"[^\"]*\"(?:\s*\"[^\"]*\")*|'.'|(?:\w+\{\w+\}|[^,;{])+)"
    found = re.search(rf"\b{name}(?:\[\])?\s*=\s*{initializer}[,;]", text)
    assert found is not None, f"{file} does not define {name}"
    plain = re.sub(r"\b\w+\{(\w+)\}", r"\1", found[1]).replace("INT32_MAX", "(1 << 31) - 1")
    plain = re.sub(r"(?<=\d)'(?=\d)", "_", plain).replace("{", "[").replace("}", "]")
    return eval(plain, {"__builtins__": {}})


@pytest.mark.parametrize(
    ("file", "name", "value"),
    [
        ("runtime/config.cc", "kAbiVersion", compatibility.ABI_VERSION),
        ("runtime/config.cc", "kPlanVersion", compatibility.PLAN_VERSION),
        ("runtime/config.h", "kConfigMediaType", compatibility.CONFIG_MEDIA_TYPE),
        ("runtime/config.h", "kOlderConfigMediaType", compatibility._CONFIG_OF_0_1),
        ("runtime/config.h", "kWhatToDo", compatibility._HINT),
        ("runtime/layout.cc", "kArtifactType", artifact.ARTIFACT_TYPE),
        ("runtime/layout.cc", "kLibraryMediaType", artifact.LIBRARY_MEDIA_TYPE),
        ("runtime/layout.cc", "kConstantsMediaType", artifact.CONSTANTS_MEDIA_TYPE),
        ("runtime/layout.cc", "kLayoutVersion", oci.LAYOUT_VERSION),
        ("runtime/plan.cc", "kMostArenaBytes", call_plan._MOST_BYTES),
        ("runtime/plan.cc", "kMostBuffers", call_plan.MOST_BUFFERS),
        ("runtime/plan.cc", "kMostCalls", call_plan.MOST_CALLS),
        ("runtime/plan.cc", "kMostOperands", call_plan.MOST_OPERANDS),
        ("runtime/plan.cc", "kMostOfLaunch", list(_LAUNCH)),
        ("runtime/plan.cc", "kMostThreadsOfBlock", call_plan._MOST_THREADS_OF_A_BLOCK),
        ("plane/control/access.cc", "kHowToShowKey", access._HINT),
        ("plane/control/access.h", "kClusterKey", asking.KEY_HEADER),
        ("plane/control/link.cc", "kLongestFrame", frames._LONGEST_BYTES),
        ("plane/control/link.h", "kProtocolVersion", frames.PROTOCOL),
        ("plane/control/loading.cc", "kSlots", running._SLOTS),
        ("plane/control/loading.cc", "kDigestTextBytes", running._DIGEST_BYTES),
        ("plane/control/system_call_filter.cc", "kCommandType", gpus.IOCTL_TYPE),
        ("plane/control/system_call_filter.cc", "kCommandTypeMask", gpus.IOCTL_TYPE_MASK),
        ("plane/control/system_call_filter.cc", "kCommandsOfUnifiedMemory", list(gpus.UVM_IOCTLS)),
        ("plane/control/names.cc", "kLongestAlias", _ALIAS_CHARACTERS),
        ("plane/control/report.h", "kLatencyBounds_s", list(metrics.LATENCY_BUCKETS_S)),
        ("plane/control/report.h", "kBatchBounds", list(metrics._BATCH_BUCKETS)),
        ("plane/request/tenant.h", "kTenantEnd", tenant.SEPARATOR),
        ("plane/text/problem.cc", "kNames", list(GRPC_CODES)),
    ],
)
def test_a_constant_is_equal_in_both_languages(file: str, name: str, value: object) -> None:
    assert _value_of(file, name) == value


def test_the_files_of_the_driver_are_equal_in_both_languages() -> None:
    read = set(_value_of("plane/control/lockdown.cc", "kOfDriver"))
    # The sandbox of child processes permits the two other paths without a GPU too.
    assert read - {"/proc/self", "/proc/meminfo"} == set(gpus._FACTS)
