"""What Octet is held to, as data: shares of the peak, and distances from the fastest peer.

They are those of the issue that asked for kernels at the physical limit, for the numerics mode `xnnpack`.
"""

from __future__ import annotations

from dataclasses import dataclass

TIMES = "\N{MULTIPLICATION SIGN}"


@dataclass(frozen=True)
class Demand:
    """None or False where nothing is demanded.

    Attributes:
        percent: at least so much of the measured peak.
        times: at least so many times as fast as the fastest peer.
        not_slower: not slower than Octet itself on one thread.
    """

    percent: float | None = None
    times: float | None = None
    not_slower: bool = False

    @property
    def text(self) -> str:
        parts = [f"≥ {self.percent:.0f} %"] if self.percent else []
        parts += [f"≥ {self.times:g} {TIMES}"] if self.times else []
        return ", ".join(parts + (["not slower than on 1 thread"] if self.not_slower else []))

    def missed(self, percent: float | None, times: float | None, of_one_thread: float | None) -> str:
        """By how much the figures fall short; empty where they do not, or where nothing was measured.

        Args:
            of_one_thread: its time as a multiple of its time on one thread.
        """
        parts = []
        if self.percent and percent is not None and percent < self.percent:
            parts.append(f"{self.percent - percent:.1f} points")
        if self.times and times is not None and times < self.times:
            parts.append(f"{self.times - times:.2f} {TIMES}")
        if self.not_slower and of_one_thread is not None and of_one_thread > 1:
            parts.append(f"{100 * (of_one_thread - 1):.1f} % slower")
        return ", ".join(parts)


_MOBILE = {1: Demand(70, 1.6), 2: Demand(60, 1.5)}
_LEGACY = {1: Demand(times=3), 2: Demand(times=2.5)}
_TINY = {1: Demand(times=1.2), 2: Demand(not_slower=True)}
_FASTER = {1: Demand(times=1), 2: Demand(times=1)}
_BATCH = {1: Demand(90), 2: Demand(86)}

# By model and threads.
DEMANDS: dict[str, dict[int, Demand]] = {
    "resnet50": {1: Demand(88, 1.12), 2: Demand(84, 1.12)},
    "mobilenet_v2": _MOBILE,
    "tf2_mobilenet_v2_1.0_224_ptq": _MOBILE,
    "mobilenet_v2_1.0_224_quant": _LEGACY,
    "mobilenet_v1_0.25_128_quant": _LEGACY,
    "pretrainedResnet_quant": _TINY,
    "kws_ref_model": _TINY,
    "inception_v3": _FASTER,
    "resnet18": _FASTER,
    "resnet50-batch8": _BATCH,
    "resnet50-batch16": _BATCH,
}

FP32_TIMES = {"resnet50": 3.8}  # int8 against the fastest float32 peer

# `litert-reference` may cost so much more time than `xnnpack`, in percent.
REFERENCE_PERCENT: dict[str, float] = {
    "resnet50": 4,
    "mobilenet_v2": 15,
    "tf2_mobilenet_v2_1.0_224_ptq": 15,
    "mobilenet_v2_1.0_224_quant": 15,
    "mobilenet_v1_0.25_128_quant": 15,
}


def demand(model: str, threads: int) -> Demand:
    return DEMANDS.get(model, {}).get(threads, Demand())


# Seconds from upload to verified artifact on two cores, by model and what earlier builds left, where vpdpbusd gives
# `BUILD_GMACS` on one core.
BUILD_S: dict[tuple[str, str], float] = {
    ("resnet50.int8", "cold"): 6,
    ("resnet50.int8", "all"): 1,
    ("mobilenet_v2.int8", "cold"): 5,
}
BUILD_GMACS = 500


def build_bound_s(model: str, kept: str, gmacs: float) -> float | None:
    """The demand on a machine of `gmacs`; None where there is none."""
    demanded = BUILD_S.get((model, kept))
    return None if demanded is None else demanded * max(1.0, BUILD_GMACS / gmacs)
