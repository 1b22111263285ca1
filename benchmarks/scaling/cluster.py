"""The contents of the simulated cluster: models, their popularity, and which workers have them in memory."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

_CHOICES = 32  # The number of workers that may load a model. Each model has its own list.
_MEDIAN_BYTES, _MEDIAN_CALL_S, _SIGMA = 6e6, 1.5e-3, 1.0  # log-normal; about MobileNetV2, with a tail up to ResNet-50.


@dataclass(frozen=True)
class Shape:
    """The size of the cluster, and its load.

    Attributes:
        zipf: the exponent of the models' popularity.
        memory_bytes: a worker's memory for models.
        fetch_bytes_per_s: a worker's network; `bucket_bytes_per_s` is the limit for all of them together.
        load_s: the time to load a model, without fetching it.
        loaders: number of models that a worker loads at a time.
        is_warm: true if each model is in the memory of one worker at the beginning.
        doubles: true if the number of workers that have a model is doubled each second while all of them are full,
            rather than increased by one.
    """

    workers: int = 1_000
    models: int = 100_000
    requests_per_s: float = 1_000_000
    zipf: float = 1.0
    cores: int = 16
    memory_bytes: float = 8e9
    fetch_bytes_per_s: float = 1.25e9
    bucket_bytes_per_s: float = 12.5e9
    load_s: float = 0.1
    loaders: int = 2
    heartbeat_s: float = 2.0
    routers: int = 50
    doubles: bool = True
    is_warm: bool = True
    seconds: float = 60.0
    tick_s: float = 0.25


class Models:
    """The models of a simulated cluster, with random rates and sizes.

    Attributes:
        rates: [models] requests per second.
        sizes: [models] bytes in memory, and to be fetched.
        call_s: [models] processor time of a prediction.
        choices: [models, 32] the workers that may load each model, in the order that rendezvous hashing of the model
            and the workers defines.
    """

    def __init__(self, shape: Shape, random: np.random.Generator) -> None:
        popularity = 1.0 / np.arange(1, shape.models + 1) ** shape.zipf
        self.rates: Floats = shape.requests_per_s * popularity / popularity.sum()
        self.sizes: Floats = random.lognormal(np.log(_MEDIAN_BYTES), _SIGMA, shape.models)
        self.call_s: Floats = random.lognormal(np.log(_MEDIAN_CALL_S), _SIGMA, shape.models)
        self.call_s[:100] = np.minimum(
            self.call_s[:100], 4 * _MEDIAN_CALL_S
        )  # otherwise a single random draw could dominate the result
        self.choices: Integers = random.integers(0, shape.workers, (shape.models, _CHOICES))


class Holdings:
    """Records which models are in the memory of which workers, and when each was last used."""

    def __init__(self, shape: Shape, models: Models) -> None:
        self._models, self._memory_bytes = models, shape.memory_bytes
        self._by_model: dict[int, list[int]] = {}
        self._by_worker: list[dict[int, float]] = [{} for _ in range(shape.workers)]  # when each model was last used
        self.used_bytes = np.zeros(shape.workers)
        self.version = np.zeros(shape.workers, np.int64)  # version of the contents of a worker's heartbeat
        self._pairs: tuple[Integers, Integers] | None = None

    def of(self, model: int) -> list[int]:
        return self._by_model.get(model, [])

    def count(self, worker: int) -> int:
        return len(self._by_worker[worker])

    def pairs(self) -> tuple[Integers, Integers]:
        """Returns [pairs] models and [pairs] workers, in the order of models."""
        if self._pairs is None:
            counts = [(model, worker) for model, workers in self._by_model.items() for worker in workers]
            both = np.array(counts, np.int64).reshape(-1, 2)
            self._pairs = both[:, 0], both[:, 1]
        return self._pairs

    def use(self, models: Integers, workers: Integers, now_s: float) -> None:
        for model, worker in zip(models.tolist(), workers.tolist(), strict=True):
            self._by_worker[worker][model] = now_s

    def add(self, model: int, worker: int, now_s: float) -> list[int]:
        """Adds a model. Returns the least recently used models that were evicted for it."""
        held, gone = self._by_worker[worker], []
        need = self._models.sizes[model]
        while held and self.used_bytes[worker] + need > self._memory_bytes:
            oldest = min(held, key=held.__getitem__)
            self.remove(oldest, worker)
            gone.append(oldest)
        held[model] = now_s
        self._by_model.setdefault(model, []).append(worker)
        self.used_bytes[worker] += need
        self._changed(worker)
        return gone

    def remove(self, model: int, worker: int) -> None:
        del self._by_worker[worker][model]
        self._by_model[model].remove(worker)
        if not self._by_model[model]:
            del self._by_model[model]
        self.used_bytes[worker] -= self._models.sizes[model]
        self._changed(worker)

    def lose(self, worker: int) -> list[int]:
        """Removes a worker that died. Returns the models that it held."""
        lost = list(self._by_worker[worker])
        for model in lost:
            self.remove(model, worker)
        return lost

    def _changed(self, worker: int) -> None:
        self.version[worker] += 1
        self._pairs = None
