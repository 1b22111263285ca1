"""Simulates the cluster over time. Loads, ends of loads, evictions, heartbeats and deaths of workers are single events.
Requests, a million per second, are drawn for all models together, a quarter of a second at a time.
"""

from __future__ import annotations

import heapq
import itertools
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from benchmarks.scaling.cluster import Floats, Holdings, Integers, Models, Shape

_FULL = 0.9  # Share of its cores above which a worker's requests wait.
_NEARLY_FULL = 0.8  # Share of its memory above which a worker counts as nearly full.
_ROUNDS = 8  # Iterations after which the work is evenly distributed among the workers that have a model.
_CONTROL_S = 1.0  # Interval at which further workers load a model whose workers are full.


@dataclass
class Tally:
    """Counts of events and requests in the second half of the simulated time, when the initial loads are over.

    Attributes:
        events: number of events by type.
        sent_bytes: sent bytes by purpose.
        missed: requests for a model that no worker had in memory.
        full: requests whose worker was full.
    """

    events: Counter[str] = field(default_factory=Counter)
    sent_bytes: Counter[str] = field(default_factory=Counter)
    requests: int = 0
    missed: int = 0
    full: int = 0
    busiest: float = 0.0
    settled_s: float = 0.0  # time until nine of ten models were in memory


class Simulation:
    def __init__(self, shape: Shape, seed: int = 1, deaths: tuple[tuple[float, int], ...] = ()) -> None:
        """
        Args:
            deaths: pairs of a time and the number of workers that die at once at this time. They return after 30 s,
                without any models.
        """
        self._shape, self._random = shape, np.random.default_rng(seed)
        self.models = Models(shape, self._random)
        self.holdings = Holdings(shape, self.models)
        self.tally = Tally()
        self._now_s, self._numbers = 0.0, itertools.count()
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._alive = np.ones(shape.workers, bool)
        self._loading: set[tuple[int, int]] = set()  # models and workers
        self._queues: list[deque[int]] = [deque() for _ in range(shape.workers)]
        self._running = np.zeros(shape.workers, np.int64)
        self._fetching = 0
        self._load = np.zeros(shape.workers)
        self._told = np.zeros(shape.workers, np.int64)
        self._read = np.zeros((shape.routers, shape.workers), np.int64)
        if shape.is_warm:
            for model in range(shape.models):
                self.holdings.add(model, int(self.models.choices[model, 0]), 0.0)
        for worker in range(shape.workers):
            self._at(self._random.uniform(0, shape.heartbeat_s), partial(self._beat, worker))
        for router in range(shape.routers):
            self._at(self._random.uniform(0, shape.heartbeat_s / 2), partial(self._look, router))
        self._at(shape.tick_s, self._tick)
        self._at(_CONTROL_S, self._spread)
        for when_s, count in deaths:
            self._at(when_s, partial(self._die, count))

    def run(self) -> Tally:
        while self._agenda and self._agenda[0][0] <= self._shape.seconds:
            self._now_s, _, happen = heapq.heappop(self._agenda)
            happen()
        return self.tally

    def _at(self, when_s: float, happen: Callable[[], None]) -> None:
        heapq.heappush(self._agenda, (when_s, next(self._numbers), happen))

    @property
    def _counts(self) -> bool:
        return self._now_s > self._shape.seconds / 2

    def _note(self, event: str, sent_bytes: float = 0.0) -> None:
        if self._counts:
            self.tally.events[event] += 1
            self.tally.sent_bytes[event] += int(sent_bytes)

    # Requests.

    def _tick(self) -> None:
        requests = self._random.poisson(self.models.rates * self._shape.tick_s)
        models, workers = self.holdings.pairs()
        holders = np.bincount(models, minlength=self._shape.models)
        missing = np.flatnonzero((requests > 0) & (holders == 0))
        for model in missing.tolist():
            self._ask_for(model)
        work = requests * self.models.call_s
        share = self._shares(work, models, workers)
        taken_s = np.bincount(workers, work[models] * share, self._shape.workers)
        self._load = taken_s / (self._shape.tick_s * self._shape.cores)
        if (
            self.holdings.used_bytes.max() > _NEARLY_FULL * self._shape.memory_bytes
        ):  # the times of last use are needed only if models are evicted
            used = (requests > 0)[models]
            self.holdings.use(models[used], workers[used], self._now_s)
        if self._counts:
            self.tally.requests += int(requests.sum())
            self.tally.missed += int(requests[missing].sum())
            self.tally.full += int((requests[models] * share * (self._load[workers] > 1.0)).sum())
            self.tally.busiest = max(self.tally.busiest, float(self._load.max()))
        elif not self.tally.settled_s and requests[missing].sum() < 0.001 * requests.sum():
            self.tally.settled_s = self._now_s
        self._at(self._now_s + self._shape.tick_s, self._tick)

    def _shares(self, work: Floats, models: Integers, workers: Integers) -> Floats:
        """Returns [pairs] the share of a model's requests that each worker with this model gets, if each request goes
        to the worker with the least outstanding work.

        Args:
            work: [models] processor time in this tick.
        """
        share = 1.0 / np.bincount(models, minlength=self._shape.models)[models]
        for _ in range(_ROUNDS):
            load = np.bincount(workers, work[models] * share, self._shape.workers)[workers]
            share /= np.sqrt(np.maximum(load, 1e-6))
            share /= np.bincount(models, share, self._shape.models)[models]
        return np.asarray(share)

    # Loading.

    def _ask_for(self, model: int) -> None:
        """Handles a request for a model that no worker has: the first live worker in the model's order loads it."""
        if any((model, worker) in self._loading for worker in self.models.choices[model, :4].tolist()):
            return
        for worker in self.models.choices[model].tolist():
            if self._alive[worker] and (model, worker) not in self._loading:
                self._order(model, worker)
                return

    def _order(self, model: int, worker: int) -> None:
        if (model, worker) not in self._loading:
            self._loading.add((model, worker))
            self._queues[worker].append(model)
            self._load_next(worker)

    def _load_next(self, worker: int) -> None:
        while self._queues[worker] and self._running[worker] < self._shape.loaders:
            model = self._queues[worker].popleft()
            self._running[worker] += 1
            self._fetching += 1
            rate = min(self._shape.fetch_bytes_per_s, self._shape.bucket_bytes_per_s / self._fetching)
            self._note("fetch", self.models.sizes[model])
            takes_s = self.models.sizes[model] / rate + self._shape.load_s
            self._at(self._now_s + takes_s, partial(self._loaded, model, worker))

    def _loaded(self, model: int, worker: int) -> None:
        self._running[worker] -= 1
        self._fetching -= 1
        self._loading.discard((model, worker))
        if self._alive[worker]:
            for _ in self.holdings.add(model, worker, self._now_s):
                self._note("eviction")
        self._load_next(worker)

    def _spread(self) -> None:
        """Lets further workers load the models whose workers are all full."""
        models, workers = self.holdings.pairs()
        least = np.full(self._shape.models, np.inf)
        np.minimum.at(least, models, self._load[workers])
        for model in np.flatnonzero(np.isfinite(least) & (least > _FULL)).tolist():
            holders = self.holdings.of(model)
            more = len(holders) if self._shape.doubles else 1
            others = [worker for worker in self.models.choices[model].tolist() if worker not in holders]
            if len(others) < more:
                others += self._random.permutation(self._shape.workers)[:more].tolist()
            for worker in [each for each in others if self._alive[each] and each not in holders][:more]:
                self._note("another holder")
                self._order(model, worker)
        self._at(self._now_s + _CONTROL_S, self._spread)

    # The load of the database and the routers.

    def _beat(self, worker: int) -> None:
        if self._alive[worker]:
            changed = self._told[worker] != self.holdings.version[worker]
            self._told[worker] = self.holdings.version[worker]
            self._note("heartbeat", 200)
            if changed:
                self._note("heartbeat with models", _ENTRY_BYTES * self.holdings.count(worker))
        self._at(self._now_s + self._shape.heartbeat_s, partial(self._beat, worker))

    def _look(self, router: int) -> None:
        """Reads, once a second, a short row of each worker, and the rows that have changed since."""
        self._note("look", _ROW_BYTES * self._shape.workers)
        for worker in np.flatnonzero(self._read[router] != self._told).tolist():
            self._note("worker read", _ENTRY_BYTES * self.holdings.count(worker))
        self._note("table", _ENTRY_BYTES * len(self.holdings.pairs()[0]))  # the cost of reading the whole table
        self._read[router] = self._told
        self._at(self._now_s + self._shape.heartbeat_s / 2, partial(self._look, router))

    def _die(self, count: int) -> None:
        for worker in self._random.permutation(self._shape.workers)[:count].tolist():
            self._alive[worker] = False
            while self._queues[worker]:
                self._loading.discard((self._queues[worker].popleft(), worker))
            self.holdings.lose(worker)
            self._at(self._now_s + 30.0, partial(self._revive, worker))

    def _revive(self, worker: int) -> None:
        self._alive[worker] = True


_ROW_BYTES = 60  # The id, time, state and number of a worker, as PostgreSQL sends them.
_ENTRY_BYTES = 30  # A name and a version.
