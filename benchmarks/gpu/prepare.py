"""What a machine with a card is sent, made on one with the compiler:

    python -m benchmarks.gpu.prepare FOLDER --target cuda-sm_90 resnet50.onnx mobilenet_v2.onnx [--batches 1 64]

FOLDER, and FOLDER.tar.xz, hold the models' artifacts for each batch, digests of the answers that this machine's CPU
gives to inputs that both machines make of the same seed, two artifacts of nothing but products, for the peaks
(`kernels/cuda/peak`), and all of this checkout that running them takes (`package`): FOLDER/benchmarks/gpu.sh.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.gpu import package
from benchmarks.gpu.samples import ABOUT_FILE, Array, digest, inputs_of
from service.cache import Manifest, OciLayout
from service.compiler.kernels.cuda import nvrtc, peak
from service.compiler.kernels.cuda.cards import CARDS, Card
from service.compiler.link import link
from service.core.artifact import (
    ARTIFACT_TYPE,
    CONSTANTS_MEDIA_TYPE,
    LIBRARY_MEDIA_TYPE,
    ArtifactConfig,
    Report,
)
from service.core.call_plan import Buffer, Call, CallPlan, Space
from service.core.compatibility import CONFIG_MEDIA_TYPE
from service.core.digest import Digest, canonical_json
from service.core.elf import data_object
from service.core.numerics import MODES
from service.core.signature import ModelSignature, TensorSpec
from service.core.target import Target, parse_target
from service.runtime.loading import load
from service.runtime.model import Model

BATCHES = (1, 8, 64, 256)
_NETWORKS = ("resnet50", "mobilenet_v2")  # that `pytorch` has


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("models", type=Path, nargs="+")
    parser.add_argument("--target", default="cuda-sm_90")
    parser.add_argument("--batches", type=int, nargs="+", default=BATCHES)
    parser.add_argument("--no-wheels", action="store_true", help="the machine has pydantic-settings")
    parser.add_argument("--peak", type=int, nargs=2, metavar=("BLOCKS", "REPETITIONS"), help="for an emulated card")
    asked = parser.parse_args()
    if asked.folder.exists():
        parser.error(f"{asked.folder} exists already")
    target, artifacts = parse_target(asked.target), asked.folder / "artifacts"
    artifacts.mkdir(parents=True)
    batches = sorted({1, *asked.batches})  # what is served begins with 1
    models = [row for model in asked.models for row in _prepared(model, batches, target, artifacts)]
    card = CARDS[target.name.removeprefix("cuda-")]
    sizes = asked.peak or (peak.BLOCKS * card.multiprocessors, peak.REPETITIONS)
    peaks = [
        _peak(card, target, artifacts, *sizes, matrix=matrix)
        for matrix in (True, False)
        if card.matrix_macs or not matrix
    ]
    about = {"target": target.name, "models": models, "peaks": peaks}
    (artifacts / ABOUT_FILE).write_text(json.dumps(about, indent=1))
    package.add_program(asked.folder)
    if not asked.no_wheels:
        package.add_wheels(asked.folder)
    packed = package.pack(asked.folder)
    print(f"{packed}: {packed.stat().st_size / 1e6:.1f} MB")


def _prepared(model: Path, batches: list[int], target: Target, artifacts: Path) -> list[dict[str, object]]:
    """One folder for all batches, as a server takes them."""
    rows: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as scratch:
        _compile(model, "host", 1, Path(scratch) / "host")
        cpu = load(Path(scratch) / "host")
        for batch in batches:
            name = f"{model.stem}-b{batch}"
            print(name, flush=True)
            artifact = _compile(model, target.name, batch, artifacts / model.stem)
            coverage = OciLayout.open(artifacts / model.stem).attached(artifact, Report.COVERAGE)
            network = next((each for each in _NETWORKS if model.stem.startswith(each)), "")
            row = {"name": name, "folder": model.stem, "artifact": artifact, "model": model.stem, "network": network}
            macs = json.loads(coverage)["macs"] if coverage else 0
            rows.append({**row, "batch": batch, "macs": macs, "answers": digest(_answers(cpu, batch))})
    return rows


def _answers(cpu: Model, batch: int) -> list[Array]:
    """Of the CPU, sample by sample."""
    inputs = inputs_of(cpu.signature.batched(batch))
    samples = [cpu.run([tensor[at : at + 1] for tensor in inputs]) for at in range(batch)]
    return [np.concatenate(outputs) for outputs in zip(*samples, strict=True)]


def _compile(model: Path, target: str, batch: int, output: Path) -> Digest:
    command = [sys.executable, "-m", "service.cli", "compile", str(model), "--target", target, "-o", str(output)]
    command += ["--batch", str(batch), "--json"]
    # The oracle computes some 500 inputs of the largest batch.
    environment = {"OCTET_BUILD_TIME_LIMIT_S": "3600"} | os.environ
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    return Digest(json.loads(done.stdout)["artifact"])


def _peak(
    card: Card, target: Target, artifacts: Path, blocks: int, repetitions: int, *, matrix: bool
) -> dict[str, object]:
    """An artifact of one call."""
    kernel = peak.peak(card, blocks, repetitions, matrix=matrix)
    assert kernel.launch is not None
    totals = kernel.output_bytes // 4
    buffers = (Buffer(Space.INPUT, 0, 4 * peak.OPERANDS), Buffer(Space.OUTPUT, 0, kernel.output_bytes))
    plan = CallPlan(0, buffers, (Call(kernel.symbol, (0, 1)),), launches=(kernel.launch,))
    tensors = TensorSpec("operands", "INT32", (peak.OPERANDS,)), TensorSpec("totals", "INT32", (totals,))
    config = ArtifactConfig(ModelSignature((tensors[0],), (tensors[1],)), target.name, MODES[0], plan)
    name = f"peak-{kernel.facts['instruction']}"
    layout = OciLayout(artifacts / name)
    with tempfile.TemporaryDirectory() as scratch:
        made, library, constants = (Path(scratch) / each for each in ("kernel.o", "library.so", "constants.bin"))
        code = nvrtc.cubin(kernel.function.source, card.capability, kernel.symbol)
        made.write_bytes(data_object(kernel.symbol, code, target.architecture))
        link([made], library, target)
        constants.write_bytes(bytes(64))
        layers = (
            layout.put_blob_descriptor(LIBRARY_MEDIA_TYPE, library),
            layout.put_blob_descriptor(CONSTANTS_MEDIA_TYPE, constants),
        )
    described = layout.put_blob_descriptor(CONFIG_MEDIA_TYPE, canonical_json(config.to_json()))
    digest = layout.put_manifest(Manifest(ARTIFACT_TYPE, described, layers, {}, subject=None)).digest
    return {"name": name, "artifact": digest, **kernel.facts}


if __name__ == "__main__":
    main()
