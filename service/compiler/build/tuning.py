"""Tuning: measures tile sizes that the cost model did not choose, and uses those that are faster.

Each round builds the whole model with the next best tile of every layer. A kernel is therefore timed at its position in
the model, with the cache contents that the layers before the kernel leave. The fastest tile of each layer goes into one
more build. This last build is verified like any other build. It replaces the first build if it is faster when the two
run alternately.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf
from pathlib import Path

from service.cache import OciLayout
from service.compiler.build.artifact_archive import is_archive
from service.compiler.build.pipeline import CompileRequest, Made, compile_model, make
from service.compiler.build.received import publish_received
from service.compiler.build.steps import Steps
from service.compiler.build.tile_store import Tile, TileStore
from service.compiler.messages.checking import RACE, TIME, ArtifactFiles, RaceResult, SpeedRequest
from service.compiler.messages.role import Result, Role
from service.core.artifacts.artifact import CONSTANTS_MEDIA_TYPE, LIBRARY_MEDIA_TYPE, ArtifactConfig
from service.core.builds.build import Progress, Stage
from service.core.builds.options import batch_of, tune_s_of, without_tuning
from service.core.digest import Digest
from service.core.errors import BuildFailed
from service.core.settings import Settings
from service.core.target import detect_host

MARGIN = 1.02  # a tuned artifact must be this many times as fast as the plain one to replace it
_LAYER_MARGIN = 1.01  # a tile must be this many times as fast as the cost model's to be chosen
_MOST_ROUNDS = 8
# Fractions of the time budget. Rounds of tuning start only within the first. The other two fractions are for timing the
# layers, and for comparing the tuned artifact with the plain one.
_BUILDING, _TIMING, _RACING = 0.5, 0.25, 0.1
_NICE = 10


def build_artifact(
    request: CompileRequest, layout: OciLayout, scratch: Path, progress: Progress, settings: Settings
) -> Digest:
    """Compiles a model, with tuning if the options request it; or verifies and publishes an uploaded artifact."""
    if is_archive(request.source):
        return publish_received(request, layout, scratch, progress, settings)
    if tune_s_of(request.options) is None:
        return compile_model(request, layout, scratch, progress, settings)
    return _Tuning(request, layout, scratch.absolute(), progress, settings).run()


class _TuningProgress:
    """The `Progress` of the builds inside a tuned build. It reports all their stages as `Stage.TUNE`."""

    def __init__(self, progress: Progress) -> None:
        self._progress, self.fraction = progress, 0.0

    def stage(self, stage: Stage, fraction: float = 0.0) -> None:
        self._progress.stage(Stage.TUNE, self.fraction)

    def log(self, line: str) -> None:
        self._progress.log(line)


class _SilentProgress(_TuningProgress):
    def log(self, line: str) -> None:
        pass


class _Tuning:
    def __init__(
        self, request: CompileRequest, layout: OciLayout, scratch: Path, progress: Progress, settings: Settings
    ) -> None:
        self._request = replace(request, source=request.source.absolute())
        self._plain = replace(self._request, options=without_tuning(request.options))
        self._layout, self._scratch, self._settings = layout, scratch, settings
        self._progress, self._inner = _TuningProgress(progress), _SilentProgress(progress)
        self._budget_s = tune_s_of(request.options) or 0.0
        self._store = TileStore(settings.tiles_dir, detect_host().model_name)

    def run(self) -> Digest:
        """Builds the artifact twice, with the cost model's tiles and with measured tiles. Returns the digest of the
        faster one.
        """
        log = self._progress.log
        plain = compile_model(self._plain, self._layout, self._directory("plain"), self._inner, self._settings)
        if self._request.target.missing_on(detect_host()):
            log("not tuned: the target does not run here")
            return plain
        table = self._table()
        if not table:
            log("no gain: no layer has a faster tile than the cost model's")
            return plain
        tuned = compile_model(
            self._request, self._layout, self._directory("tuned"), self._inner, self._settings, tiles=table
        )
        self._report_fraction(0.9)
        race = self._race(plain, tuned)
        times = race.times_as_fast
        milliseconds = f"{1e3 * race.first_s:.3f} ms before, {1e3 * race.second_s:.3f} ms after"
        log(f"{times:.3f} times as fast in {race.rounds} turns: {milliseconds}")
        if times < MARGIN:
            log(f"no gain: a tuned artifact must be at least {MARGIN:g} times as fast")
            return plain
        log(f"promoted: {len(table)} layers with other tiles")
        return tuned

    def _table(self) -> dict[str, Tile]:
        """Returns the tiles of the layers for which a tile other than the cost model's is faster."""
        first = self._round(0, {})
        default = {layer.key: layer.tile for layer in first.layers}
        known = self._store.measured(default)
        self._progress.log(f"{len(default)} distinct layers, {len(known)} of them measured before")
        if known.keys() < default.keys():
            known |= self._search(first, known)
        return {key: tile for key, tile in known.items() if tile != default[key]}

    def _search(self, first: _Round, known: Mapping[str, Tile]) -> dict[str, Tile]:
        """Measures the layers that are not in `known`, and returns their fastest tiles."""
        rounds, until_s = [first], time.monotonic() + _BUILDING * self._budget_s
        while len(rounds) < _MOST_ROUNDS and (len(rounds) == 1 or time.monotonic() < until_s):
            rounds.append(self._round(len(rounds), known))
            if rounds[-1].tiles == rounds[-2].tiles:
                rounds.pop()  # no layer has more candidates
                break
            self._report_fraction(0.6 * len(rounds) / _MOST_ROUNDS)
        times = self._times(rounds)
        found: dict[str, Tile] = {}
        for key in first.tiles.keys() - known.keys():
            by_round = [each.seconds(key, taken) for each, taken in zip(rounds, times, strict=True)]
            best = min(range(len(rounds)), key=by_round.__getitem__)
            best = best if by_round[0] > _LAYER_MARGIN * by_round[best] else 0
            found[key] = rounds[best].tiles[key]
            self._store.keep(key, found[key], by_round[best], by_round[0])
        faster = sum(tile != first.tiles[key] for key, tile in found.items())
        self._progress.log(f"{len(rounds)} tiles tried for each of {len(found)} layers: {faster} have a faster one")
        return found

    def _round(self, rank: int, tiles: Mapping[str, Tile]) -> _Round:
        directory = self._directory(f"round-{rank}")
        steps = Steps(self._plain, directory, self._inner, self._settings, nice=_NICE)
        signature = steps.imported().signature.batched(batch_of(self._plain.options))
        return _Round(make(steps, signature, tiles, rank))

    def _times(self, rounds: Sequence[_Round]) -> Sequence[Mapping[str, float]]:
        made = [each.made for each in rounds]
        models = [ArtifactFiles(one.config, one.library, one.constants) for one in made]
        times = self._measure(TIME, models, max(1.0, _TIMING * self._budget_s)).seconds
        if len(times) != len(rounds):
            raise BuildFailed("the time process did not return the times of every round", stage=Stage.TUNE)
        return times

    def _race(self, plain: Digest, tuned: Digest) -> RaceResult:
        models = []
        for digest in (plain, tuned):
            manifest = self._layout.manifest(digest)
            paths = {layer.media_type: self._layout.blobs.path(layer.digest) for layer in manifest.layers}
            library, constants = (paths[kind].absolute() for kind in (LIBRARY_MEDIA_TYPE, CONSTANTS_MEDIA_TYPE))
            config = ArtifactConfig.from_json(json.loads(self._layout.blobs.read(manifest.config.digest)))
            models.append(ArtifactFiles(config, library, constants))
        return self._measure(RACE, models, max(1.0, _RACING * self._budget_s))

    def _measure(self, role: Role[SpeedRequest, Result], models: Sequence[ArtifactFiles], seconds: float) -> Result:
        steps = Steps(self._plain, self._directory(role.name), self._inner, self._settings, nice=_NICE)
        files = [path for each in models for path in each.paths]
        return steps.run(role, SpeedRequest(tuple(models), seconds), readable=files)

    def _directory(self, name: str) -> Path:
        path = self._scratch / name
        path.mkdir()
        return path

    def _report_fraction(self, fraction: float) -> None:
        self._progress.fraction = self._inner.fraction = fraction
        self._progress.stage(Stage.TUNE)


class _Round:
    """A build with one tile for each distinct layer.

    Attributes:
        tiles: layer key -> tile.
        symbols: layer key -> symbols of the kernels that compute such layers.
    """

    def __init__(self, made: Made) -> None:
        self.made, self.layers = made, made.built.tiles
        self.tiles = {layer.key: layer.tile for layer in self.layers}
        self.symbols: dict[str, set[str]] = {}
        for layer in self.layers:
            self.symbols.setdefault(layer.key, set()).add(layer.symbol)

    def seconds(self, key: str, taken: Mapping[str, float]) -> float:
        """Returns the time of a layer: the sum of its kernels' times, or infinity if a kernel was not timed."""
        return sum(taken.get(symbol, inf) for symbol in self.symbols.get(key, ())) or inf
