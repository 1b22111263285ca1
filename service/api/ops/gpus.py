"""The memory of GPUs, according to the data plane's last report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from service.workers.data_plane.messages import GpuMemory


class Gpus(Collector):
    """Gauges of GPU memory. Exports none on a machine without GPUs, or before a model is loaded to one."""

    def __init__(self) -> None:
        self._cards: Sequence[GpuMemory] = ()

    def update(self, gpus: Sequence[GpuMemory]) -> None:
        self._cards = gpus

    def collect(self) -> Iterator[GaugeMetricFamily]:
        if not self._cards:
            return
        labels = ("card", "name")
        used = GaugeMetricFamily("octet_card_used_bytes", "Memory of a GPU that models use.", labels=labels)
        memory = GaugeMetricFamily("octet_card_memory_bytes", "Memory of a GPU.", labels=labels)
        for each in self._cards:
            which = str(each["card"]), str(each["name"])
            used.add_metric(which, each["used_bytes"])
            memory.add_metric(which, each["memory_bytes"])
        yield used
        yield memory

    def describe(self) -> Iterator[GaugeMetricFamily]:
        return iter(())
