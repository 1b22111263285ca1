"""What a machine with a card is sent, made on one with the compiler:

    python -m benchmarks.gpu.prepare FOLDER --target cuda-sm_90 resnet50.onnx mobilenet_v2.onnx [--batches 1 64]

For each model and batch an artifact, and digests of the answers that this machine's CPU gives to inputs that both
machines make of the same seed; and two artifacts of nothing but products, for the peaks (`kernels/cuda/peak`).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.gpu.samples import ABOUT_FILE, digest, inputs_of
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
    only_artifact,
)
from service.core.call_plan import Buffer, Call, CallPlan, Space
from service.core.compatibility import CONFIG_MEDIA_TYPE
from service.core.digest import canonical_json
from service.core.elf import data_object
from service.core.numerics import MODES
from service.core.signature import ModelSignature, TensorSpec
from service.core.target import Target, parse_target
from service.runtime.loading import load

BATCHES = (1, 8, 64, 256)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("models", type=Path, nargs="+")
    parser.add_argument("--target", default="cuda-sm_90")
    parser.add_argument("--batches", type=int, nargs="+", default=BATCHES)
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    target = parse_target(asked.target)
    models = [_prepared(model, batch, target, asked.folder) for model in asked.models for batch in asked.batches]
    card = CARDS[target.name.removeprefix("cuda-")]
    peaks = [
        _peak(card, target, asked.folder, matrix=matrix) for matrix in (True, False) if card.matrix_macs or not matrix
    ]
    about = {"target": target.name, "models": models, "peaks": peaks}
    (asked.folder / ABOUT_FILE).write_text(json.dumps(about, indent=1))


def _prepared(model: Path, batch: int, target: Target, folder: Path) -> dict[str, object]:
    name = f"{model.stem}-b{batch}"
    print(name, flush=True)
    _compile(model, target.name, batch, folder / name)
    with tempfile.TemporaryDirectory() as scratch:
        _compile(model, "host", batch, Path(scratch) / "host")
        cpu = load(Path(scratch) / "host")
        inputs = inputs_of(cpu.signature)
        answers = digest(cpu.run(inputs))
    layout = OciLayout.open(folder / name)
    artifact = only_artifact((each.digest, each.artifact_type) for each in layout.index())
    coverage = layout.attached(artifact, Report.COVERAGE)
    macs = json.loads(coverage)["macs"] if coverage else 0
    return {"name": name, "model": model.stem, "batch": batch, "macs": macs, "answers": answers}


def _compile(model: Path, target: str, batch: int, output: Path) -> None:
    command = [sys.executable, "-m", "service.cli", "compile", str(model), "--target", target, "-o", str(output)]
    subprocess.run([*command, *(["--batch", str(batch)] if batch > 1 else [])], check=True, stdout=subprocess.DEVNULL)


def _peak(card: Card, target: Target, folder: Path, *, matrix: bool) -> dict[str, object]:
    """An artifact of one call."""
    kernel = peak.peak(card, card.multiprocessors, matrix=matrix)
    assert kernel.launch is not None
    totals = kernel.output_bytes // 4
    buffers = (Buffer(Space.INPUT, 0, 4 * peak.OPERANDS), Buffer(Space.OUTPUT, 0, kernel.output_bytes))
    plan = CallPlan(0, buffers, (Call(kernel.symbol, (0, 1)),), launches=(kernel.launch,))
    tensors = TensorSpec("operands", "INT32", (peak.OPERANDS,)), TensorSpec("totals", "INT32", (totals,))
    config = ArtifactConfig(ModelSignature((tensors[0],), (tensors[1],)), target.name, MODES[0], plan)
    name = f"peak-{kernel.facts['instruction']}"
    layout = OciLayout(folder / name)
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
    layout.put_manifest(Manifest(ARTIFACT_TYPE, described, layers, {}, subject=None))
    return {"name": name, **kernel.facts}


if __name__ == "__main__":
    main()
