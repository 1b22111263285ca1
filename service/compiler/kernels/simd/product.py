"""Products of two computed matrices of 8 bits, as attention has them: `qnn.matmul`, requantized.

An item takes some blocks of columns of the second matrix, lays them out for `Isa.dot` in memory of its own, which stays
in the first level of cache, and multiplies all rows of the first matrix by them. Both zero points are taken out of
sums: of the columns while they are laid out, and of the rows beside the products.
"""

from __future__ import annotations

import math

import numpy as np
from tvm import tirx

from service.compiler.kernels.group import Group, PlainKernel, shape_of
from service.compiler.kernels.kernel import Array, Declined, Kernel
from service.compiler.kernels.layout import NO_HALO
from service.compiler.kernels.program import Expr, Program, Register, at_most, bits, load, splat
from service.compiler.kernels.simd.isa import Isa
from service.compiler.kernels.simd.lanes import Lanes
from service.compiler.kernels.simd.requantization import DoubleRounding, FloatScale, Requantization
from service.compiler.kernels.simd.tiles import worth_sharing
from service.compiler.qnn.numerics import Mode
from service.compiler.qnn.numerics.requantize import FloatRequantize, TwoRoundings, multipliers
from service.compiler.qnn.operation import Operation
from service.compiler.qnn.types import QuantizedType

_LARGEST = 255 * 255  # magnitude of a product
_FLIPPED = {"int8": -128, "uint8": 0}  # what unsigned bytes have more; signed ones have 128 less than unsigned


def product_kernel(isa: Isa, mode: Mode, group: Group) -> PlainKernel:
    """The kernel for a `qnn.matmul` and its `qnn.requantize`.

    Raises:
        Declined: shapes broadcast or fill no vectors, or no kernel computes `mode`'s formula.
    """
    core, (lhs, rhs) = group.core, (shape_of(var) for var in group.inputs)
    if group.requantize is None:
        raise Declined("its sums are not requantized")
    if lhs[:-2] != rhs[:-2]:
        raise Declined("its matrices are repeated")
    sizes = math.prod(lhs[:-2]), lhs[-2], lhs[-1], rhs[-1]
    if sizes[2] % isa.group or sizes[3] < isa.lanes:
        raise Declined(f"its {sizes[2]} products and {sizes[3]} columns fill no vectors of {isa.name}")
    types = (core.per_tensor("lhs_type"), core.per_tensor("rhs_type"), group.out_type)
    if any(each.storage not in _FLIPPED for each in types):
        raise Declined("its matrices are not of 8 bits")
    kernel, memory = _Product(isa, sizes, types, _scale(mode, group.requantize, sizes[2])).kernel()
    return PlainKernel(kernel, NO_HALO, 0, memory)


def _scale(mode: Mode, requantize: Operation, depth: int) -> Requantization:
    """The requantization of sums of `depth` products, by one scale."""
    formula, in_type = mode.formula(requantize), requantize.per_tensor("in_type")
    if in_type.zero_point:
        raise Declined(f"sums of type {in_type} have a zero point")
    if isinstance(formula, TwoRoundings):
        (significand,), (shift,) = multipliers(requantize)
        if shift > 0 and depth * _LARGEST << int(shift) >= 1 << 31:
            raise Declined("its scaled sums may leave 32 bits")
        return DoubleRounding(np.array([significand]), np.array([shift]), bounded=depth * _LARGEST < 1 << 30)
    if isinstance(formula, FloatRequantize):
        scales = np.asarray(formula.scales(requantize), np.float32).reshape(-1)[:1]
        return FloatScale(scales, bounded=bool(depth * _LARGEST * float(scales[0]) < 1 << 31))
    raise Declined(f"no kernel computes {formula.summary}")


class _Product:
    def __init__(
        self,
        isa: Isa,
        sizes: tuple[int, int, int, int],
        types: tuple[QuantizedType, QuantizedType, QuantizedType],
        scale: Requantization,
    ) -> None:
        self.isa, self.scale = isa, scale
        self.batch, self.height, self.depth, self.width = sizes
        self.lhs_type, self.rhs_type, self.out_type = types
        self.lhs_zero_point = self.lhs_type.zero_point - _FLIPPED[self.lhs_type.storage]
        self.rhs_zero_point = self.rhs_type.zero_point - (128 + _FLIPPED[self.rhs_type.storage])
        blocks = -(-self.width // isa.lanes)
        self.blocks = min(4 if isa.registers >= 32 else 2, blocks)
        self.rows = min(self.blocks if isa.registers < 32 else 4, self.height)
        self.parts = -(-blocks // self.blocks)
        self.groups = self.depth // isa.group

    @property
    def numbers(self) -> Array:
        """What differs between products of one shape, int32: constants of the kernel, so that they share the code."""
        points = self.depth * self.lhs_zero_point * self.rhs_zero_point, self.lhs_zero_point, self.rhs_zero_point
        out = self.out_type
        return np.array([*points, out.zero_point, out.min, out.max], np.int32)

    def kernel(self) -> tuple[Kernel, int]:
        """The kernel, and the bytes of memory that it takes behind its output."""
        program = self.program = Program()
        self.lanes = Lanes(program, self.isa)
        sizes = self.height * self.depth, self.depth * self.width, self.height * self.width
        self.lhs, self.rhs = (
            program.parameter(name, kind.storage, self.batch * size)
            for name, kind, size in zip(("lhs", "rhs"), (self.lhs_type, self.rhs_type), sizes, strict=False)
        )
        constants = (self.numbers, *self.scale.arrays)
        numbers, *factors = (
            program.parameter(f"constant_{place}", str(array.dtype), array.size)
            for place, array in enumerate(constants)
        )
        self.written = program.parameter("destination", self.out_type.storage, self.batch * sizes[2])
        items, own = self.batch * self.parts, self.groups * self.blocks * self.isa.bytes
        self.memory = program.parameter("memory", "uint8", items * own)
        macs = self.batch * self.height * self.depth * self.width
        parallel = worth_sharing(self.isa, macs / self.isa.bytes * self.isa.rates.dot)
        with program.loop(items, "item", parallel=parallel) as item:
            self.both, self.lhs_point, self.rhs_point, *self.bounds = (
                self.lanes.keep(splat(load(numbers, place, 1), self.isa.lanes)) for place in range(self.numbers.size)
            )
            self.factors = tuple(
                self.lanes.keep(splat(load(buffer, 0, 1), self.isa.lanes), str(buffer.dtype)) for buffer in factors
            )
            image, part = program.bind(item // self.parts), item % self.parts
            self.columns = [
                program.bind(at_most((part * self.blocks + block) * self.isa.lanes, self.width - self.isa.lanes))
                for block in range(self.blocks)
            ]
            starts = self._laid_out(program.bind(image * sizes[1]), item * own)
            with program.loop(-(-self.height // self.rows), "tile") as tile:
                row = program.bind(at_most(tile * self.rows, self.height - self.rows))
                self._tile(program.bind(image * self.height + row), item * own, starts)
        facts = {"tile": f"{self.rows} rows, {self.blocks} blocks"}
        return Kernel("product", program.function(), constants, self.batch * sizes[2], facts), items * own

    def _laid_out(self, rhs: Expr, memory: Expr) -> list[Register]:
        """Lays out the item's columns; where their sums start, so that zero points are out of them."""
        program, isa, lanes = self.program, self.isa, self.isa.lanes
        order = [row * lanes + lane for lane in range(lanes) for row in range(isa.group)]
        sums = [self._register(splat(tirx.const(0, "int32"), lanes)) for _ in self.columns]
        ones = splat(tirx.const(0x01010101, "int32"), lanes)
        with program.loop(self.groups, "group") as group:
            for place, column in enumerate(self.columns):
                rows = [
                    load(self.rhs, rhs + (group * isa.group + row) * self.width + column, lanes)
                    for row in range(isa.group)
                ]
                joined = tirx.Shuffle(rows, [tirx.const(at, "int32") for at in order])
                vector = bits(f"uint8x{isa.bytes}", joined)
                if self.rhs_type.storage == "uint8":
                    vector = vector ^ splat(tirx.const(128, "uint8"), isa.bytes)
                vector = program.bind(vector, f"uint8x{isa.bytes}")
                program.store(self.memory, memory + (group * self.blocks + place) * isa.bytes, vector, isa.bytes)
                weights = isa.computed_weights(program, vector)
                sums[place].value = isa.dot(sums[place].value, isa.operand(program, ones), weights)
        for register in sums:
            register.value = self.both - register.value * self.lhs_point
        return sums

    def _tile(self, row: Expr, memory: Expr, starts: list[Register]) -> None:
        """Some rows times the item's columns; `row` counts those of all matrices."""
        program, isa = self.program, self.isa
        totals = [[self._register(start.value) for start in starts] for _ in range(self.rows)]
        of_rows = [self._register(self.lanes.const(0)) for _ in range(self.rows if self.rhs_zero_point else 0)]
        with program.loop(self.groups, "group") as group:
            weights = [
                isa.computed_weights(
                    program, load(self.memory, memory + (group * self.blocks + place) * isa.bytes, isa.bytes)
                )
                for place in range(self.blocks)
            ]
            for line in range(self.rows):
                four = bits("int32", load(self.lhs, (row + line) * self.depth + group * isa.group, isa.group))
                if self.lhs_type.storage == "int8":
                    four = four ^ tirx.const(-0x7F7F7F80, "int32")  # the highest bit of each byte
                operand = isa.operand(program, splat(four, isa.lanes))
                for register, factors in zip(totals[line], weights, strict=True):
                    register.value = isa.dot(register.value, operand, factors)
                if of_rows:
                    of_rows[line].value = isa.dot(of_rows[line].value, operand, isa.ones)
        for line, registers in enumerate(totals):
            for column, register in zip(self.columns, registers, strict=True):
                total = register.value
                if of_rows:
                    total = total - of_rows[line].value * self.rhs_point
                to = program.bind((row + line) * self.width + column)
                program.store(self.written, to, self._requantized(total), isa.lanes)

    def _requantized(self, total: Expr) -> Expr:
        zero_point, low, high = self.bounds
        value = self.scale.apply(self.lanes, self.lanes.keep(total), self.factors)
        bound = 1 << 16  # so that the sum cannot overflow
        near = tirx.max(tirx.min(value, self.lanes.const(bound)), self.lanes.const(-bound))
        held = tirx.max(tirx.min(near + zero_point, high), low)
        return tirx.Cast(f"{self.out_type.storage}x{self.isa.lanes}", held)

    def _register(self, value: Expr) -> Register:
        register = self.program.register("int32", self.isa.lanes)
        register.value = value
        return register
