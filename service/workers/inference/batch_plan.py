"""Which of the built batch sizes compute a number of samples soonest."""

from __future__ import annotations

from collections.abc import Mapping

# Who is computed together is answered together: the first waits for the last. A tenth of the time has to be saved for
# that, which is also more than two measurements of the same call differ by.
_WORTH = 0.9


class BatchPlan:
    """For each number of samples up to the largest size, the calls that compute them.

    A call of more samples than there are is filled up with others that nobody asked for, where that takes less time
    than several smaller calls. By the times, and by nothing else: a convolution on one core takes eight times as long
    for eight samples, a model of a few small layers hardly longer than for one.

    Attributes:
        most: samples that can be planned for.
        table: of each number of them, the sizes of the calls, largest first.
    """

    def __init__(self, call_s: Mapping[int, float]) -> None:
        """`call_s`: the time of one call of each size, of which 1 is one."""
        self.most = max(call_s)
        self.table: list[tuple[int, ...]] = [()]
        durations_s = [0.0]
        for samples in range(1, self.most + 1):
            best_s: float = float("inf")
            best: tuple[int, ...] = ()
            for size in sorted(call_s):
                rest = max(0, samples - size)
                duration_s = call_s[size] + durations_s[rest]
                if duration_s < best_s * _WORTH:
                    best_s, best = duration_s, (size, *self.table[rest])
            durations_s.append(best_s)
            self.table.append(tuple(sorted(best, reverse=True)))
