"""Creates the package for a machine with a GPU, on a machine with the compiler:

    python -m benchmarks.gpu.prepare FOLDER --target cuda-sm_90 resnet50.onnx mobilenet_v2.onnx [--batches 1 64]

FOLDER, and FOLDER.tar.xz, contain the models' artifacts for each batch; digests of the outputs that this machine's CPU
computes from inputs that both machines generate from the same seed; two artifacts of multiplications only, for the
peaks (`kernels/cuda/peak`); the 3x3 convolutions of ResNet-50 alone (`layers`); all launches of the kernels' tests,
with the emulation's outputs (`launches`); and all parts of this checkout that are needed to run all this (`package`).
The command to run is FOLDER/benchmarks/gpu.sh.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.gpu import artifacts, launches, layers, package
from benchmarks.gpu.samples import ABOUT_FILE, digest, inputs_of
from benchmarks.harness.artifacts import compile_model
from service.cache import OciLayout
from service.compiler.kernels.cuda import peak
from service.compiler.kernels.cuda.gpus import GPUS, Gpu
from service.compiler.kernels.cuda.tiles import Unit
from service.compiler.kernels.kernel import DeviceFunction
from service.compiler.targets import codegen_target
from service.core.artifacts.artifact import Report
from service.core.artifacts.call_plan import Buffer, Call, Space
from service.core.digest import Digest
from service.core.models.arrays import Array
from service.core.target import Target, parse_target
from service.runtime.loading import load
from service.runtime.model import Model

_KERNELS = "kernels"  # the folder of the launches of the kernels' tests
BATCHES = (1, 8, 64, 256)
_NETWORKS = ("resnet50", "mobilenet_v2")  # the networks of `pytorch`


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("models", type=Path, nargs="+")
    parser.add_argument("--target", default="cuda-sm_90")
    parser.add_argument("--batches", type=int, nargs="+", default=BATCHES)
    parser.add_argument("--no-wheels", action="store_true", help="leave out wheels: the machine has pydantic-settings")
    parser.add_argument("--peak", type=int, nargs=2, metavar=("BLOCKS", "REPETITIONS"), help="for an emulated card")
    parser.add_argument(
        "--layer-batch", type=int, default=layers.BATCH, help="batch of the convolutions that are measured alone"
    )
    parser.add_argument("--recorded", type=Path, help="folder that caches the launches of the kernels' tests")
    parser.add_argument("--kernel-tests", nargs="+", default=[launches.TESTS], help="files or folders of tests")
    arguments = parser.parse_args()
    if arguments.folder.exists():
        parser.error(f"{arguments.folder} exists already")
    target, artifacts_folder = parse_target(arguments.target), arguments.folder / "artifacts"
    capabilities = codegen_target(target).cards
    if len(capabilities) != 1:
        parser.error(f"{target} names several kinds of GPUs, but a package measures one")
    artifacts_folder.mkdir(parents=True)
    batches = sorted({1, *arguments.batches})  # serving begins with 1
    models = [row for model in arguments.models for row in _prepared(model, batches, target, artifacts_folder)]
    gpu = GPUS[capabilities[0]]
    sizes = arguments.peak or (peak.BLOCKS * gpu.multiprocessors, peak.REPETITIONS)
    peaks = [_peak(unit, gpu, target, artifacts_folder, *sizes) for unit in Unit if unit.macs(gpu)]
    alone = layers.put(gpu, target, arguments.layer_batch, artifacts_folder / layers.FOLDER)
    kernels = _kernels(gpu, target, artifacts_folder, arguments.recorded, arguments.kernel_tests)
    about = {"target": target.name, "models": models, "peaks": peaks, "layers": alone, "kernels": kernels}
    (artifacts_folder / ABOUT_FILE).write_text(json.dumps(about, indent=1))
    package.add_program(arguments.folder)
    if not arguments.no_wheels:
        package.add_wheels(arguments.folder)
    packed = package.pack(arguments.folder)
    print(f"{packed}: {packed.stat().st_size / 1e6:.1f} MB")


def _prepared(model: Path, batches: list[int], target: Target, folder: Path) -> list[dict[str, object]]:
    """Compiles one folder for all batches, as a server loads them."""
    rows: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as scratch:
        _compile(model, "host", 1, Path(scratch) / "host")
        cpu = load(Path(scratch) / "host")
        for batch in batches:
            name = f"{model.stem}-b{batch}"
            print(name, flush=True)
            artifact = _compile(model, target.name, batch, folder / model.stem)
            coverage = OciLayout.open(folder / model.stem).attached(artifact, Report.COVERAGE)
            network = next((each for each in _NETWORKS if model.stem.startswith(each)), "")
            row = {"name": name, "folder": model.stem, "artifact": artifact, "model": model.stem, "network": network}
            macs = json.loads(coverage)["macs"] if coverage else 0
            rows.append({**row, "batch": batch, "macs": macs, "answers": digest(_answers(cpu, batch))})
    return rows


def _answers(cpu: Model, batch: int) -> list[Array]:
    """Returns the CPU's outputs, sample by sample."""
    inputs = inputs_of(cpu.signature.batched(batch))
    samples = [cpu.run([tensor[at : at + 1] for tensor in inputs]) for at in range(batch)]
    return [np.concatenate(outputs) for outputs in zip(*samples, strict=True)]


def _compile(model: Path, target: str, batch: int, output: Path) -> Digest:
    # The default limit is too short, because the oracle computes some 500 inputs of the largest batch.
    os.environ.setdefault("OCTET_BUILD_TIME_LIMIT_S", "3600")
    return Digest(compile_model(model, output, "--target", target, "--batch", str(batch)))


def _peak(unit: Unit, gpu: Gpu, target: Target, folder: Path, blocks: int, repetitions: int) -> dict[str, object]:
    """Writes an artifact of one call."""
    kernel = peak.peak(unit, blocks, repetitions)
    assert isinstance(kernel.function, DeviceFunction)
    buffers = (Buffer(Space.INPUT, 0, 4 * peak.OPERANDS), Buffer(Space.OUTPUT, 0, kernel.output_bytes))
    call = Call(kernel.symbol, (0, 1)), kernel.function.launch
    name = f"peak-{kernel.facts['instruction']}"
    library = artifacts.linked({kernel.symbol: kernel.function.source}, gpu.capability, target)
    digest = artifacts.put(OciLayout(folder / name), library, target, buffers, [call])
    return {"name": name, "artifact": digest, **kernel.facts}


def _kernels(gpu: Gpu, target: Target, folder: Path, recorded: Path | None, tests: list[str]) -> dict[str, object]:
    """Returns the launches of the kernels' tests, from the folder `recorded` if that exists already."""
    with tempfile.TemporaryDirectory() as scratch:
        found = recorded or Path(scratch) / "recorded"
        if not found.exists():
            launches.record(found, tests)
        kept = launches.chosen(found, gpu)
        launches.put(kept.launches, gpu, target, folder / _KERNELS)
    about = {"folder": _KERNELS, "count": len(kept.launches), "others": kept.others, "newer": kept.newer}
    print(f"launches of the kernels' tests: {about}", flush=True)
    return about


if __name__ == "__main__":
    main()
