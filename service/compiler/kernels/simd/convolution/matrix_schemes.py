"""The cost model of `matrix`, which chooses panels and groups of tiles."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import astuple, dataclass
from math import ceil

from service.compiler.kernels.choices import Numbers
from service.compiler.kernels.layer import Layer
from service.compiler.kernels.simd.convolution.panel import Panel
from service.compiler.kernels.vector.isa import Isa, Matrix

_MOST_PIXELS = 512  # in a panel
_MOST_BYTES = 384 * 1024  # in a panel
_SHARES = (1, 2, 4, 8, 16)
_GROUPS = ((2, 2), (4, 1), (2, 1), (1, 2), (1, 1))
_FEW_CYCLES, _MOST_ITEMS = 50_000, 8  # an item has at least so many cycles, if that leaves at least so many items


@dataclass(frozen=True)
class Scheme:
    """The division of a layer into panels and groups.

    Attributes:
        rows, columns: the output pixels of a panel.
        pixel_tiles, blocks: the tiles of pixels and of channels in a group, whose totals are in tile registers.
        shares: the number of parts of the output channels. Each part is a separate item for every panel.
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
        """The scheme as plain data."""
        return tuple(map(int, astuple(self)))

    @staticmethod
    def of(numbers: Numbers) -> Scheme:
        rows, columns, pixel_tiles, blocks, shares, separate = numbers
        return Scheme(rows, columns, pixel_tiles, blocks, shares, bool(separate))

    @property
    def pixels_outside(self) -> bool:
        """True if the weights of all blocks stay in registers while pixels are loaded; false for the reverse."""
        return self.blocks <= self.pixel_tiles

    @property
    def activation_tiles(self) -> int:
        """The number of tiles that contain activations. The remaining tiles contain weights."""
        return 2 if self.pixels_outside and self.pixel_tiles > 1 else self.pixel_tiles


def panel_of(unit: Matrix, layer: Layer, scheme: Scheme) -> Panel:
    return Panel(layer, scheme.rows, scheme.columns, unit.depth, separate=scheme.separate)


def tile_rows(unit: Matrix, pixels: int, pixel_tiles: int) -> int:
    """Returns the rows of a tile of pixels, so that the last group overlaps little. A group must fit the panel."""
    groups = -(-pixels // (unit.rows * pixel_tiles))
    return max(1, min(pixels // pixel_tiles, -(-pixels // (groups * pixel_tiles))))


def ranked(isa: Isa, layer: Layer, epilogue_cycles: float) -> list[tuple[float, Scheme]]:
    """Returns the candidate schemes, the one with the fewest estimated cycles first. Empty if tiles are not faster."""
    unit = isa.matrix
    if unit is None or (layer.source.packed and layer.window.dilation[1] > 1):
        return []
    costs = [(_cycles(unit, layer, scheme, epilogue_cycles), scheme) for scheme in _schemes(unit, layer)]
    enough = min(_MOST_ITEMS, min((cost for cost, _ in costs), default=0.0) / _FEW_CYCLES)
    most = max((_items(layer, scheme) for _, scheme in costs), default=0)
    kept = [(cost, scheme) for cost, scheme in costs if _items(layer, scheme) >= min(enough, most)]
    return sorted(kept, key=lambda pair: pair[0])


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
    # Weights that do not stay in L2 cache are loaded again for each panel, while others are multiplied.
    panels = _items(layer, scheme) // scheme.shares
    weight_rows = ceil(layer.destination.blocks / scheme.blocks) * steps * scheme.blocks * unit.rows
    streams = panels if weight_rows * unit.depth > rate.far_bytes else 1
    streamed = streams * weight_rows * rate.memory_row
    return max(_items(layer, scheme) * item, streamed) + rate.overlap * streamed
