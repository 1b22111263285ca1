"""Translates the PTX instructions of inline assembly to C++ for the CPU.

Each translation follows the text of the PTX ISA. An instruction that is not in this table raises an error. Registers
are C++ variables of their width: `unsigned`, `unsigned long long`, `unsigned short`, `float`, or `bool` for predicates.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from tools.cuda_emulator.errors import UnknownDeviceCode

_EMULATED = "::octet_emulated::"
_WIDTHS = {"8": "unsigned char", "16": "unsigned short", "32": "unsigned", "64": "unsigned long long"}
_SIGNED = {"8": "signed char", "16": "short", "32": "int", "64": "long long"}


@dataclass(frozen=True)
class Operand:
    """A register or a constant (`text` is C++), a vector `{…}` of these, or an address `[text + offset]`."""

    text: str
    vector: tuple[str, ...] = ()
    address: bool = False

    @property
    def elements(self) -> tuple[str, ...]:
        return self.vector or (self.text,)


Operands = tuple[Operand, ...]
Handler = Callable[["re.Match[str]", Operands], str]
_INSTRUCTIONS: list[tuple[re.Pattern[str], int, Handler]] = []


def _instruction(pattern: str, operands: int) -> Callable[[Handler], Handler]:
    def register(handler: Handler) -> Handler:
        _INSTRUCTIONS.append((re.compile(pattern), operands, handler))
        return handler

    return register


def statement(opcode: str, operands: Operands) -> str:
    """Returns the C++ statement for one instruction without its guard predicate."""
    for pattern, count, handler in _INSTRUCTIONS:
        if (match := pattern.fullmatch(opcode)) and len(operands) in {count, count or len(operands)}:
            return handler(match, operands)
    raise UnknownDeviceCode(f"the instruction {opcode} with {len(operands)} operands has no emulation")


def _type(ptx: str) -> str:
    """Returns the C++ type for a PTX type such as `u32`, `s8`, `b64` or `f32`."""
    if ptx == "f32":
        return "float"
    return (_SIGNED if ptx[0] == "s" else _WIDTHS)[ptx[1:]]


def _as(ptx: str, text: str) -> str:
    """Returns an expression that reads `text` as a type. A float register may contain bits, and a register of bits may
    contain a float.
    """
    return f"{_EMULATED}read<{_type(ptx)}>({text})"


def _set(target: Operand, value: str) -> str:
    return f"{_EMULATED}write({target.text}, {value});"


def _array(name: str, values: tuple[str, ...], length: int, opcode: str) -> str:
    if len(values) != length:
        raise UnknownDeviceCode(f"{opcode}: {len(values)} registers instead of {length}")
    return f"const unsigned {name}[] = {{{', '.join(_as('u32', value) for value in values)}}};"


@_instruction(r"mma\.sync\.aligned\.m(8|16)n8k(16|32)\.row\.col\.s32\.([us])8\.([us])8\.s32", 4)
def _mma(match: re.Match[str], operands: Operands) -> str:
    rows, depth = int(match[1]), int(match[2])
    if (rows, depth) == (8, 32):
        raise UnknownDeviceCode(f"{match[0]}: there is no such shape")
    tall, deep = rows // 8, depth // 16
    d, a, b, c = (operand.elements for operand in operands)
    lengths = (("a", a, tall * deep), ("b", b, deep), ("c", c, 2 * tall))
    arrays = " ".join(_array(f"octet_{name}", values, length, match[0]) for name, values, length in lengths)
    signs = ", ".join("true" if match[side] == "s" else "false" for side in (3, 4))
    call = f"{_EMULATED}mma({rows}, {depth}, {signs}, octet_d, octet_a, octet_b, octet_c);"
    return f"{{ unsigned octet_d[{len(c)}]; {arrays} {call} {_spread(d, len(c), match[0])} }}"


@_instruction(r"ldmatrix\.sync\.aligned\.m8n8\.x([124])(\.trans)?\.shared(::cta)?\.b16", 2)
def _ldmatrix(match: re.Match[str], operands: Operands) -> str:
    count, transposed = int(match[1]), "true" if match[2] else "false"
    call = f"{_EMULATED}load_matrices({count}, {transposed}, octet_d, {_as('u32', operands[1].text)});"
    return f"{{ unsigned octet_d[{count}]; {call} {_spread(operands[0].elements, count, match[0])} }}"


@_instruction(r"wgmma\.mma_async\.sync\.aligned\.m64n(\d+)k32\.s32\.u8\.s8", 4)
def _wgmma(match: re.Match[str], operands: Operands) -> str:
    columns, (d, a, b, adds) = int(match[1]), operands
    if columns % 8 or not 8 <= columns <= 256:
        raise UnknownDeviceCode(f"{match[0]}: there is no such shape")
    sums = _array("octet_c", d.elements, columns // 2, match[0])
    described = f"{_as('u64', a.text)}, {_as('u64', b.text)}"
    call = f"{_EMULATED}multiply_group({columns}, octet_d, octet_c, {described}, {adds.text});"
    return f"{{ {sums} unsigned octet_d[{columns // 2}]; {call} {_spread(d.elements, columns // 2, match[0])} }}"


@_instruction(r"wgmma\.fence\.sync\.aligned", 0)
def _wgmma_fence(match: re.Match[str], operands: Operands) -> str:
    return ";"  # nothing to do, because registers belong to the fiber that writes them


@_instruction(r"wgmma\.commit_group\.sync\.aligned", 0)
def _wgmma_commit(match: re.Match[str], operands: Operands) -> str:
    return f"{_EMULATED}commit_products();"


@_instruction(r"wgmma\.wait_group\.sync\.aligned", 1)
def _wgmma_wait(match: re.Match[str], operands: Operands) -> str:
    return f"{_EMULATED}wait_products({operands[0].text});"


@_instruction(r"fence\.proxy\.async(\.shared::cta)?", 0)
def _proxy_fence(match: re.Match[str], operands: Operands) -> str:
    return f"{_EMULATED}publish();"


def _spread(registers: tuple[str, ...], length: int, opcode: str) -> str:
    if len(registers) != length:
        raise UnknownDeviceCode(f"{opcode}: {len(registers)} registers instead of {length}")
    return " ".join(f"{_EMULATED}write({register}, octet_d[{each}]);" for each, register in enumerate(registers))


@_instruction(r"cp\.async\.(ca|cg)\.shared(?:::cta)?\.global(?:\.L2::(?:64|128|256)B)?", 0)
def _cp_async(match: re.Match[str], operands: Operands) -> str:
    if len(operands) not in (3, 4):
        raise UnknownDeviceCode(f"{match[0]} takes 3 or 4 operands")
    destination, source, size = (operand.text for operand in operands[:3])
    filled = operands[3].text if len(operands) == 4 else size
    sizes = "octet_size == 16" if match[1] == "cg" else "octet_size == 4 || octet_size == 8 || octet_size == 16"
    check = f'constexpr unsigned octet_size = {size}; static_assert({sizes}, "{match[0]}: no such size");'
    addresses = f"{_as('u32', destination)}, {_as('u64', source)}"
    return f"{{ {check} {_EMULATED}copy_async({addresses}, octet_size, {_as('u32', filled)}); }}"


@_instruction(r"cp\.async\.commit_group", 0)
def _commit(match: re.Match[str], operands: Operands) -> str:
    return f"{_EMULATED}commit_copies();"


@_instruction(r"cp\.async\.wait_(group|all)", 0)
def _wait(match: re.Match[str], operands: Operands) -> str:
    pending = operands[0].text if match[1] == "group" else "0"
    return f"{_EMULATED}wait_copies({pending}, {'true' if match[1] == 'all' else 'false'});"


@_instruction(r"dp4a\.([us])32\.([us])32", 4)
def _dp4a(match: re.Match[str], operands: Operands) -> str:
    signs = ", ".join("true" if sign == "s" else "false" for sign in match.groups())
    values = ", ".join(_as("u32", operand.text) for operand in operands[1:])
    return _set(operands[0], f"{_EMULATED}dp4a<{signs}>({values})")


@_instruction(r"prmt\.b32", 4)
def _prmt(match: re.Match[str], operands: Operands) -> str:
    values = ", ".join(_as("u32", operand.text) for operand in operands[1:])
    return _set(operands[0], f"{_EMULATED}permute({values}, true)")


@_instruction(r"shf\.([lr])\.(wrap|clamp)\.b32", 4)
def _shf(match: re.Match[str], operands: Operands) -> str:
    values = ", ".join(_as("u32", operand.text) for operand in operands[1:])
    left, clamp = ("true" if flag else "false" for flag in (match[1] == "l", match[2] == "clamp"))
    return _set(operands[0], f"{_EMULATED}funnel({left}, {clamp}, {values})")


@_instruction(r"(bar|barrier)\.sync(\.aligned)?", 0)
def _bar(match: re.Match[str], operands: Operands) -> str:
    barrier, threads = ([_as("u32", operand.text) for operand in operands] + ["0"])[:2]
    return f"{_EMULATED}block_barrier({barrier}, {threads}, __builtin_LINE());"


@_instruction(r"bar\.warp\.sync", 1)
def _warp(match: re.Match[str], operands: Operands) -> str:
    return f"{_EMULATED}warp_barrier({_as('u32', operands[0].text)}, __builtin_LINE());"


@_instruction(r"membar\.(cta|gl|sys)|fence(\.sc|\.acq_rel)?\.(cta|gpu|sys)", 0)
def _fence(match: re.Match[str], operands: Operands) -> str:
    return ";"  # nothing to do, because fibers see each other's writes at once


@_instruction(r"prefetch\.global\.L[12](::evict_last|::evict_normal)?", 1)
def _prefetch(match: re.Match[str], operands: Operands) -> str:
    return ";"


@_instruction(r"cvta\.to\.(shared|global)\.u64", 2)
def _cvta(match: re.Match[str], operands: Operands) -> str:
    source = operands[1].text
    value = f"{_EMULATED}shared_address((const void*)({source}))" if match[1] == "shared" else source
    return _set(operands[0], f"(unsigned long long)({value})")


_ACCESS = r"(?:\.(?:volatile|relaxed\.(?:cta|gpu)))?(?:\.(shared|global)(?:::cta)?)"
_CACHE = r"(?:\.(?:nc|ca|cg|cs|lu|wb|wt)|\.L1::\w+|\.L2::\w+)*"


@_instruction(rf"(ld|st){_ACCESS}{_CACHE}(?:\.v([24]))?\.([busf](?:8|16|32|64))", 2)
def _memory(match: re.Match[str], operands: Operands) -> str:
    opcode, space, count, ptx = match[1], match[2], int(match[3] or 1), match[4]
    values, address = operands if opcode == "ld" else operands[::-1]
    if not address.address or len(values.elements) != count:
        raise UnknownDeviceCode(f"{match[0]}: not an address and {count} registers")
    where = _as("u32", address.text) if space == "shared" else _as("u64", address.text)
    pointer = f"{_EMULATED}shared_pointer({where})" if space == "shared" else f"(void*)({where})"
    size = f"sizeof({_type(ptx)}) * {count}"
    if opcode == "ld":
        spread = " ".join(f"{_EMULATED}write({name}, octet_v[{each}]);" for each, name in enumerate(values.elements))
        return f"{{ {_type(ptx)} octet_v[{count}]; {_EMULATED}load(octet_v, {pointer}, {size}, {size}); {spread} }}"
    listed = ", ".join(_as(ptx, name) for name in values.elements)
    return f"{{ const {_type(ptx)} octet_v[] = {{{listed}}}; {_EMULATED}store({pointer}, octet_v, {size}, {size}); }}"


@_instruction(
    r"(?:red|atom)(?:\.relaxed)?(?:\.gpu|\.cta)?\.(shared|global)(?:::cta)?\.(add|min|max|and|or|xor)\.([bus]32)", 0
)
def _atomic(match: re.Match[str], operands: Operands) -> str:
    kinds = {"add": "add", "min": "smallest", "max": "largest", "and": "both", "or": "either", "xor": "exclusive"}
    address, value = operands[-2:]
    shared = match[1] == "shared"
    where = _as("u32" if shared else "u64", address.text)
    pointer = f"{_EMULATED}shared_pointer({where})" if shared else f"(void*)({where})"
    signed = "true" if match[3][0] == "s" else "false"
    kind = f"{_EMULATED}Atomic::{kinds[match[2]]}"
    call = f"(unsigned){_EMULATED}atomic({kind}, {signed}, {pointer}, 4, {_as('u32', value.text)}, 0)"
    return _set(operands[0], call) if len(operands) == 3 else f"{call};"


_BINARY = {"add": "+", "sub": "-", "mul.lo": "*", "and": "&", "or": "|", "xor": "^"}


@_instruction(r"(add|sub|mul\.lo)\.([us](?:16|32|64))|(and|or|xor)\.(b(?:16|32|64))", 3)
def _integer(match: re.Match[str], operands: Operands) -> str:
    name, ptx = (match[1], match[2]) if match[1] else (match[3], match[4])
    unsigned = "u" + ptx[1:]  # unsigned arithmetic wraps
    left, right = (_as(unsigned, operand.text) for operand in operands[1:])
    return _set(operands[0], f"({_type(unsigned)})({left} {_BINARY[name]} {right})")


@_instruction(r"(add|sub|mul)(?:\.rn)?\.f32", 3)
def _floating(match: re.Match[str], operands: Operands) -> str:
    sign = {"add": "+", "sub": "-", "mul": "*"}[match[1]]
    return _set(operands[0], f"({_as('f32', operands[1].text)} {sign} {_as('f32', operands[2].text)})")


@_instruction(r"fma\.rn\.f32", 4)
def _fma(match: re.Match[str], operands: Operands) -> str:
    return _set(operands[0], f"fmaf({', '.join(_as('f32', operand.text) for operand in operands[1:])})")


@_instruction(r"mul\.(wide|hi)\.([us])32", 3)
def _wide(match: re.Match[str], operands: Operands) -> str:
    wide, ptx = _type(match[2] + "64"), match[2] + "32"
    product = f"(({wide}){_as(ptx, operands[1].text)} * {_as(ptx, operands[2].text)})"
    value = f"(unsigned long long){product}" if match[1] == "wide" else f"(unsigned)({product} >> 32)"
    return _set(operands[0], value)


@_instruction(r"mad\.(lo|wide)\.([us])32", 4)
def _mad(match: re.Match[str], operands: Operands) -> str:
    if match[1] == "lo":
        left, right, added = (_as("u32", operand.text) for operand in operands[1:])
        return _set(operands[0], f"{left} * {right} + {added}")
    wide, ptx = _type(match[2] + "64"), match[2] + "32"
    product = f"({wide}){_as(ptx, operands[1].text)} * {_as(ptx, operands[2].text)}"
    return _set(operands[0], f"(unsigned long long)({product}) + {_as('u64', operands[3].text)}")


@_instruction(r"(min|max)\.([us](?:16|32|64))", 3)
def _extremes(match: re.Match[str], operands: Operands) -> str:
    left, right = (_as(match[2], operand.text) for operand in operands[1:])
    sign = "<" if match[1] == "min" else ">"
    return _set(operands[0], f"({_type('u' + match[2][1:])})({left} {sign} {right} ? {left} : {right})")


@_instruction(r"(min|max)\.f32", 3)
def _float_extremes(match: re.Match[str], operands: Operands) -> str:
    values = ", ".join(_as("f32", operand.text) for operand in operands[1:])
    return _set(operands[0], f"f{match[1]}f({values})")


@_instruction(r"(shl|shr)\.([bus](?:32|64))", 3)
def _shift(match: re.Match[str], operands: Operands) -> str:
    value, amount = _as(match[2], operands[1].text), _as("u32", operands[2].text)
    sign = "<<" if match[1] == "shl" else ">>"
    width = match[2][1:]
    past = f"({value} < 0 ? -1 : 0)" if match[2][0] == "s" and match[1] == "shr" else "0"
    shifted = f"({amount} < {width} ? {value} {sign} {amount} : {past})"
    return _set(operands[0], f"({_type('u' + width)}){shifted}")


@_instruction(r"(not|mov)\.([busf](?:16|32|64))", 2)
def _move(match: re.Match[str], operands: Operands) -> str:
    value = _as(match[2], operands[1].text)
    return _set(operands[0], f"({_type(match[2])})~{value}" if match[1] == "not" else value)


@_instruction(r"setp\.(eq|ne|lt|le|gt|ge)\.([bus](?:16|32|64))", 3)
def _setp(match: re.Match[str], operands: Operands) -> str:
    sign = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}[match[1]]
    left, right = (_as(match[2], operand.text) for operand in operands[1:])
    return f"{operands[0].text} = {left} {sign} {right};"


@_instruction(r"selp\.([busf](?:16|32|64))", 4)
def _selp(match: re.Match[str], operands: Operands) -> str:
    left, right = (_as(match[1], operand.text) for operand in operands[1:3])
    return _set(operands[0], f"({operands[3].text} ? {left} : {right})")


_ROUNDED = {"rni": "rintf", "rzi": "truncf", "rmi": "floorf", "rpi": "ceilf"}


@_instruction(r"cvt\.(rni|rzi|rmi|rpi)(\.sat)?\.([us](?:8|16|32))\.f32", 2)
def _float_to_integer(match: re.Match[str], operands: Operands) -> str:
    value = f"{_EMULATED}saturate<{_type(match[3])}>({_ROUNDED[match[1]]}({_as('f32', operands[1].text)}))"
    return _set(operands[0], _extended(match[3], value))


@_instruction(r"cvt\.rn\.f32\.([us]32)", 2)
def _integer_to_float(match: re.Match[str], operands: Operands) -> str:
    return _set(operands[0], f"(float){_as(match[1], operands[1].text)}")


@_instruction(r"cvt(\.sat)?\.([us](?:8|16|32|64))\.([us](?:8|16|32|64))", 2)
def _integer_to_integer(match: re.Match[str], operands: Operands) -> str:
    value = _as(match[3], operands[1].text)
    if match[1]:
        if "64" in match[2] + match[3]:
            raise UnknownDeviceCode(f"the instruction {match[0]} has no emulation")
        value = f"{_EMULATED}saturate<{_type(match[2])}>({value})"
    return _set(operands[0], _extended(match[2], f"({_type(match[2])}){value}"))


def _extended(ptx: str, value: str) -> str:
    """Extends a value by its sign or with zeros to the width of its register, which is at least 16 bits."""
    return f"(unsigned)({value})" if ptx[1:] in ("8", "16") else f"({_type('u' + ptx[1:])})({value})"


@_instruction(r"cvt\.pack\.sat\.([us](?:8|16))\.s32(\.b32)?", 0)
def _pack(match: re.Match[str], operands: Operands) -> str:
    """Packs `sat(b)` into the lowest bits of d, and `sat(a)` above it. For 8 bits, the low half of c is placed above
    both.
    """
    narrow, width = f"u{match[1][1:]}", int(match[1][1:])
    if len(operands) != (4 if width == 8 else 3) or bool(match[2]) != (width == 8):
        raise UnknownDeviceCode(f"{match[0]} with {len(operands)} operands has no emulation")
    high, low = (
        f"(unsigned)({_type(narrow)}){_EMULATED}saturate<{_type(match[1])}>({_as('s32', operand.text)})"
        for operand in operands[1:3]
    )
    above = f" | {_as('u32', operands[3].text)} << 16" if width == 8 else ""
    return _set(operands[0], f"({low} | {high} << {width}{above})")
