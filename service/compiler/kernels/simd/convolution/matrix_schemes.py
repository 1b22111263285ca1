"""The cost model of `matrix`. It chooses the size of panels, and the number of tiles that are in registers together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass
from math import ceil

from service.compiler.kernels.choices import Numbers
from service.compiler.kernels.layer import Layer
from service.compiler.kernels.simd.convolution.panel import Panel
from service.compiler.kernels.vector.isa import Isa, Matrix

_MOST_PIXELS = 512  # the largest number of pixels in a panel
_MOST_BYTES = 384 * 1024  # the largest size of a panel
_SHARES = (1, 2, 4, 8, 16)
_GROUPS = ((2, 2), (4, 1), (2, 1), (1, 2), (1, 1))
# There are at least `_MOST_ITEMS` iterations of the parallel loop, or one for each `_FEW_CYCLES` if these are fewer.
_FEW_CYCLES, _MOST_ITEMS = 50_000, 8


@dataclass(frozen=True)
class Scheme:
    """The division of a layer into panels, and of panels into groups of tiles.

    Attributes:
        rows, columns: the size of a panel, in output pixels.
        pixel_tiles, blocks: the number of pixel tiles and of channel blocks in a group. The accumulators of a group are
            in tile registers.
        shares: the number of parts into which the output channels are divided. For every panel, each part is a separate
            iteration of the parallel loop.
        separate: as in `Panel`.
    """

    rows: int
    columns: int
    pixel_tiles: int
    blocks: int
    shares: int
    separate: bool

    @property
    def numbers(self) -> Numbers:
        """The scheme as a tuple of integers, as in tables of tiles."""
        return tuple(map(int, astuple(self)))

    @staticmethod
    def of(numbers: Numbers) -> Scheme:
        rows, columns, pixel_tiles, blocks, shares, separate = numbers
        return Scheme(rows, columns, pixel_tiles, blocks, shares, bool(separate))

    @property
    def pixels_outside(self) -> bool:
        """True if the weights of all blocks stay in registers while tiles of pixels are loaded one by one.

        Otherwise the pixels stay in registers while weights are loaded one by one.
        """
        return self.blocks <= self.pixel_tiles

    @property
    def activation_tiles(self) -> int:
        """The number of tiles that contain activations. The remaining tiles contain weights."""
        return 2 if self.pixels_outside and self.pixel_tiles > 1 else self.pixel_tiles


def panel_of(unit: Matrix, layer: Layer, scheme: Scheme) -> Panel:
    return Panel(layer, scheme.rows, scheme.columns, unit.depth, separate=scheme.separate)


def tile_rows(unit: Matrix, pixels: int, pixel_tiles: int) -> int:
    """Returns the number of rows (pixels) of a tile.

    The number is chosen so that groups of `pixel_tiles` tiles cover the panel with little overlap of the last group.
    """
    groups = -(-pixels // (unit.rows * pixel_tiles))
    return max(1, min(pixels // pixel_tiles, -(-pixels // (groups * pixel_tiles))))


def ranked(isa: Isa, layer: Layer, epilogue_cycles: float, lengths: Sequence[int] = ()) -> list[tuple[float, Scheme]]:
    """Returns (estimated cycles, scheme) for each candidate, the fastest first. Empty if tiles cannot compute the
    layer.

    Args:
        lengths: as in `tiles.ranked`. Only whole panels beyond the length are left out.
    """
    unit = isa.matrix
    if unit is None or (layer.source.packed and layer.window.dilation[1] > 1):
        return []
    costs = [(_cycles(unit, layer, scheme, epilogue_cycles), scheme) for scheme in _schemes(unit, layer)]
    enough = min(_MOST_ITEMS, min((cost for cost, _ in costs), default=0.0) / _FEW_CYCLES)
    most = max((_items(layer, scheme) for _, scheme in costs), default=0)
    kept = [(cost, scheme) for cost, scheme in costs if _items(layer, scheme) >= min(enough, most)]
    if not lengths:
        return sorted(kept, key=lambda pair: pair[0])
    width, excess = layer.output[1], {scheme: 1.0 for _, scheme in kept}
    for length in lengths:
        part = layer.narrowed(length)
        least = min((_cycles(unit, part, scheme, epilogue_cycles) for scheme in _schemes(unit, part)), default=1.0)
        for cost, scheme in kept:
            own = cost * ceil(length / scheme.columns) / ceil(width / scheme.columns)
            excess[scheme] = max(excess[scheme], own / least)
    return sorted(kept, key=lambda pair: excess[pair[1]])


def _schemes(unit: Matrix, layer: Layer) -> Iterator[Scheme]:
    (height, width), blocks = layer.output, layer.destination.blocks
    shapes = {(-(-height // parts), width) for parts in range(1, height + 1)} if width <= _MOST_PIXELS else set()
    shapes |= {(1, -(-width // parts)) for parts in range(1, -(-width // unit.rows) + 1)}
    for rows, columns in sorted(shapes):
        for separate in (False, True) if layer.window.kernel[1] > 1 and not layer.source.packed else (False,):
            panel = Panel(layer, rows, columns, unit.depth, separate=separate)
            if panel.length > _MOST_PIXELS or panel.size_bytes > _MOST_BYTES:
                continue
            for pixel_tiles, deep in _GROUPS:
                if panel.length < pixel_tiles or deep > blocks:
                    continue
                for shares in _SHARES:
                    if shares <= -(-blocks // deep):
                        yield Scheme(rows, columns, pixel_tiles, deep, shares, separate)


def _items(layer: Layer, scheme: Scheme) -> int:
    height, width = layer.output
    panels = -(-height // scheme.rows) * -(-width // scheme.columns)
    return layer.source.batch * panels * scheme.shares


def _cycles(unit: Matrix, layer: Layer, scheme: Scheme, epilogue_cycles: float) -> float:
    """Estimates the cycles of the whole layer on one core."""
    rate, panel = unit.rates, panel_of(unit, layer, scheme)
    rows = tile_rows(unit, panel.length, scheme.pixel_tiles)
    groups = -(-panel.length // (rows * scheme.pixel_tiles))
    steps = len(panel.offsets)
    weight_bytes = steps * scheme.blocks * unit.weight_bytes
    pixel_bytes = panel.size_bytes / groups
    far_weights = groups == 1 or weight_bytes > rate.near_bytes
    far_pixels = pixel_bytes + min(weight_bytes, rate.near_bytes) > 1.5 * rate.near_bytes
    loads = scheme.blocks * unit.rows * (rate.far_row if far_weights else rate.near_row)
    loads += scheme.pixel_tiles * rows * (rate.far_row if far_pixels else rate.near_row)
    work = max(scheme.pixel_tiles * scheme.blocks * rows * rate.row, rows + rate.latency)
    step = max(work, loads) + rate.overlap * min(work, loads)
    tiles = ceil(ceil(layer.destination.blocks / scheme.blocks) / scheme.shares)
    totals = panel.rows * (-(-panel.columns // 4) * 4 if panel.columns > 3 else panel.columns) * scheme.blocks
    stored = scheme.pixel_tiles * scheme.blocks * rows * rate.row
    finish = totals * (rate.vector * epilogue_cycles + rate.epilogue)
    item = (
        rate.item
        + rate.pack * panel.copied_bytes / unit.depth
        + tiles * (groups * (steps * step + stored + rate.group) + finish)
    )
    # Weights that do not fit the L2 cache are loaded from memory again for each panel, while other weights are
    # multiplied.
    panels = _items(layer, scheme) // scheme.shares
    weight_rows = ceil(layer.destination.blocks / scheme.blocks) * steps * scheme.blocks * unit.rows
    streams = panels if weight_rows * unit.depth > rate.far_bytes else 1
    streamed = streams * weight_rows * rate.memory_row
    return max(_items(layer, scheme) * item, streamed) + rate.overlap * streamed
