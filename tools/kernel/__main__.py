"""Builds the kernel of one operator, compares its results with the oracle, and measures it.

    python -m tools.kernel conv2d --input 1,56,56,64 --channels 64 --window 3
    python -m tools.kernel depthwise --input 1,28,28,192 --window 3 --strides 2 --mode xnnpack --perf
    python -m tools.kernel dense --input 1,512 --channels 1000 --target x86-64-v3 --asm
    python -m tools.kernel add --input 1,28,28,64 --target aarch64+dotprod --ir

The operator gets random parameters and inputs. The program prints the kernels that are selected for the target, and the
number of values that equal those of the oracle. The exit status is 1 if any value differs. Kernels for ARM run on an
emulated CPU, which needs `qemu-user-static`. Kernels for GPUs are built but not run.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from service.compiler.kernels.libraries import peak_for
from service.compiler.kernels.objects import assembly_of, program_of
from service.compiler.qnn import oracle
from service.compiler.qnn.numerics import get_mode
from service.compiler.targets import codegen_target
from service.core.builds.numerics import LITERT_REFERENCE, MODES
from service.core.errors import OctetError
from service.core.models.arrays import Array
from service.core.target import Target, detect_host, parse_target
from service.runtime import load_files
from service.runtime.profile import profile
from tests.support import emulated, emulated_models
from tools.kernel.building import Lowered, lower
from tools.kernel.operators import OPERATORS, Parameters, macs_of, module_of


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    parameters = Parameters(
        shape=options.input,
        channels=options.channels,
        window=options.window,
        strides=options.strides,
        padding=not options.valid,
        storage=options.storage,
        inputs=options.inputs,
    )
    try:
        target = parse_target(options.target)
        with tempfile.TemporaryDirectory() as folder:
            return _build_and_check(options, parameters, target, Path(folder))
    except (OctetError, ValueError) as error:
        print(f"{options.operator} {_format_shape(parameters.shape)}: {error}", file=sys.stderr)
        return 2


def _build_and_check(options: argparse.Namespace, parameters: Parameters, target: Target, scratch: Path) -> int:
    mode = get_mode(options.mode)
    module = module_of(options.operator, parameters)
    rng = np.random.default_rng(1)
    bounds = np.iinfo(parameters.storage)
    inputs = [
        rng.integers(bounds.min, bounds.max + 1, parameters.shape).astype(parameters.storage)
        for _ in module["main"].params
    ]
    peak = peak_for(target)
    lowered = lower(module, target, options.mode, inputs, scratch, extra=[] if peak is None else [peak])
    _print_kernels(options, lowered, target)
    outputs = _run(lowered, target, inputs)
    if outputs is None:
        print("not run: neither this machine nor an emulator can run the target")
        return 0
    different = _count_different(outputs, oracle.run(module, mode, inputs))
    values = sum(output.size for output in outputs)
    print(f"{values - different:,} of {values:,} values equal the oracle's" + (": WRONG" if different else ""))
    if options.perf:
        _print_speed(options, parameters, lowered, target)
    return min(different, 1)


def _print_kernels(options: argparse.Namespace, lowered: Lowered, target: Target) -> None:
    for symbol, kernel in lowered.selection.kernels.items():
        print(symbol)
        if options.ir:
            print(program_of(kernel) if kernel.launch is not None else kernel.function)
        if options.asm and kernel.launch is None:
            print(assembly_of(program_of(kernel), symbol, codegen_target(target)))
    if not lowered.selection.kernels:
        print("the library has no kernel for this operator: TVM generates its code")


def _run(lowered: Lowered, target: Target, inputs: Sequence[Array]) -> list[Array] | None:
    """Returns the outputs, or None if neither this machine nor an emulator runs the target."""
    if target.name in emulated.CPUS:
        if reason := emulated_models.missing(target.name):
            print(reason)
            return None
        return emulated_models.run(target.name, lowered.write_config(), lowered.config.signature, [list(inputs)])[0]
    if target.device != "cpu" or not target.runs_on(detect_host()):
        return None
    return load_files(lowered.config, lowered.library, lowered.constants).run(inputs)


def _print_speed(options: argparse.Namespace, parameters: Parameters, lowered: Lowered, target: Target) -> None:
    if target.name in emulated.CPUS:
        print("not timed: the CPU is emulated")
        return
    model = load_files(lowered.config, lowered.library, lowered.constants, threads=options.threads)
    peak = peak_for(target)
    measured = profile(model, peak=None if peak is None else peak.facts, seconds=options.seconds)
    for call in measured.calls:
        print(f"{call.symbol}: {call.seconds * 1e6:,.2f} us")
    macs, seconds = macs_of(options.operator, parameters), sum(call.seconds for call in measured.calls)
    if macs and measured.peak_macs_per_s:
        share = macs / seconds / measured.peak_macs_per_s
        print(f"{macs:,} MACs: {macs / seconds / 1e9:,.1f} GMAC/s, {share:.0%} of the peak measured in the same run")
    print(f"{measured.machine}, {measured.threads} threads, {measured.rounds} rounds, medians")


def _count_different(outputs: Sequence[Array], expected: Sequence[Array]) -> int:
    return sum(int(np.count_nonzero(a != b)) for a, b in zip(outputs, expected, strict=True))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("operator", choices=sorted(OPERATORS))
    parser.add_argument("--input", type=_numbers, required=True, help="1,56,56,64 ([N, H, W, C]) or 1,512 ([N, K])")
    parser.add_argument("--channels", type=int, default=64, help="output channels of conv2d and dense")
    parser.add_argument("--window", type=_pair, default=(1, 1), help="3, or 1,7 for rows and columns")
    parser.add_argument("--strides", type=_pair, default=(1, 1))
    parser.add_argument("--valid", action="store_true", help="do not pad the window")
    parser.add_argument("--inputs", type=int, default=2, help="the number of inputs of a concatenation")
    parser.add_argument("--storage", choices=["int8", "uint8"], default="int8")
    parser.add_argument("--mode", choices=sorted(MODES), default=LITERT_REFERENCE)
    parser.add_argument("--target", default="host", help="a target that octet doctor lists")
    parser.add_argument("--ir", action="store_true", help="print the programs of the kernels")
    parser.add_argument("--asm", action="store_true", help="print the machine code of the kernels")
    parser.add_argument("--perf", action="store_true", help="time the kernels beside the peak of the instructions")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=0.5, help="how long --perf measures")
    return parser


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


def _pair(text: str) -> tuple[int, int]:
    numbers = _numbers(text)
    if len(numbers) not in (1, 2):
        raise argparse.ArgumentTypeError(f"{text!r} is not one or two numbers")
    return numbers[0], numbers[-1]


def _format_shape(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape))


if __name__ == "__main__":
    sys.exit(main())
