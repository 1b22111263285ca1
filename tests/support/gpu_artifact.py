"""Writes artifacts for a GPU with the kernels of `small_kernels`, in the form that `octet compile` writes."""

from __future__ import annotations

import io
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np

from service.cache.layout import OciLayout
from service.cache.oci import Manifest
from service.core.artifacts.artifact import (
    ARTIFACT_TYPE,
    CONSTANTS_MEDIA_TYPE,
    FORMAT_ANNOTATION,
    LIBRARY_MEDIA_TYPE,
    NUMERICS_ANNOTATION,
    SOURCE_ANNOTATION,
    TARGET_ANNOTATION,
    Report,
)
from service.core.artifacts.compatibility import CONFIG_MEDIA_TYPE
from service.core.digest import Digest, canonical_json, digest_of
from service.core.models.signature import ModelSignature
from service.core.verification.vectors import sample_inputs
from tests.support.small_artifact import CONSTANTS, LENGTH, config_of

CAPABILITY = 80
_SAMPLES = 3


def on_gpu(config: dict[str, Any], launches: Any = None, *capabilities: int) -> dict[str, Any]:
    """Returns the config of an artifact for GPUs. `launches` are the launch parameters of each call; by default, one
    thread.
    """
    names = [f"sm_{each}" for each in capabilities or (CAPABILITY,)]
    copy = deepcopy(config)
    for call in copy["plan"]["calls"]:
        call[0] = f"octet_{call[0]}"
    copy["plan"]["launches"] = launches or [[1, 1, 1, 1, 1, 1, 0]] * len(copy["plan"]["calls"])
    copy["requires"] = names
    copy["target"] = f"cuda-{'+'.join(names)}"
    return copy


# Computes (in + constant) * 2.
SIMPLE = on_gpu(
    config_of([("input", 0), ("constant", 64), ("arena", 64), ("output", 0)], [("add", [0, 1, 2]), ("twice", [2, 3])])
)
# Computes a sum over the calls of a sequence.
COUNTING = on_gpu(
    config_of(
        [("input", 0), ("state", 0), ("next_state", 0), ("output", 0)], [("add", [0, 1, 2])], copies=[(2, 3)], states=1
    )
)


def simple(given: Any) -> Any:
    """Returns the expected output of `SIMPLE`."""
    return (2 * (given + CONSTANTS[LENGTH:])).astype(np.int32)


def write_artifact(folder: Path, library: Path, config: Any = SIMPLE, answer: Callable[[Any], Any] = simple) -> Digest:
    """Writes an artifact with its expected outputs, and with a coverage report that lists no layers."""
    layout = OciLayout(folder)
    layers = (
        layout.put_blob_descriptor(LIBRARY_MEDIA_TYPE, library.read_bytes()),
        layout.put_blob_descriptor(CONSTANTS_MEDIA_TYPE, CONSTANTS.tobytes()),
    )
    annotations = {
        SOURCE_ANNOTATION: digest_of(b""),
        TARGET_ANNOTATION: config["target"],
        NUMERICS_ANNOTATION: "xnnpack",
        FORMAT_ANNOTATION: "tflite",
    }
    described = layout.put_blob_descriptor(CONFIG_MEDIA_TYPE, canonical_json(config))
    digest = layout.put_manifest(Manifest(ARTIFACT_TYPE, described, layers, annotations)).digest
    answers, samples = io.BytesIO(), sample_inputs(ModelSignature.from_json(config["signature"]), _SAMPLES)
    expected = {f"{number}.0": answer(inputs[0]) for number, inputs in enumerate(samples)}
    np.savez(answers, allow_pickle=False, **expected)
    layout.attach(digest, Report.VECTORS, answers.getvalue())
    kernels = {"layers": [], "plain": [], "declined": {}, "reorders": 0}
    layout.attach(digest, Report.COVERAGE, canonical_json({"macs": 0, "integer_percent": 0.0, "kernels": kernels}))
    return digest
