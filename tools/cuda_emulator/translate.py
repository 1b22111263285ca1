"""Translates one unit of CUDA C++ to C++ for the CPU, for the parts of CUDA that a header cannot provide.

The text must be preprocessed with `__CUDA_ARCH__` and similar macros, so that it contains only code for the device.
Then:
  * each `asm` statement becomes the instructions of `ptx.py`, on variables for its operands;
  * `__shared__ T name[n];` becomes a static variable that is registered with the runtime, and
    `extern __shared__ T name[];` becomes a pointer into the dynamic part;
  * a table of the kernels (`extern "C" __global__`) is appended, through which the runtime calls them.

Line numbers do not change.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import count

from tools.cuda_emulator.errors import UnknownDeviceCode
from tools.cuda_emulator.ptx import Operand, statement

_ASM = re.compile(r"\b(?:asm|__asm__|__asm)\b\s*(?:(?:volatile|__volatile__)\b\s*)?(?=\()")
_SHARED = re.compile(r"\b(extern\s+)?__shared__\s+([^;{}]+?)\s*;")
_DECLARED = re.compile(r"(?s)(?P<type>.*?)\b(?P<name>\w+)\s*(?P<dimensions>(?:\[[^\]]*\]\s*)*)")
_ALIGNED = re.compile(r"(?:alignas|__align__)\s*\(\s*([^()]*)\)\s*")
_KERNEL = re.compile(
    r'extern\s*"C"\s*__global__\s+(?:void\s+)?'
    r"(?:__launch_bounds__\s*\((?P<bounds>[^()]*(?:\([^()]*\)[^()]*)*)\)\s*)?(?:void\s+)?(?P<name>\w+)\s*\("
)
_LITERAL = re.compile(r'"(?:[^"\\]|\\.)*"')
_CONSTRAINTS = {"r": "unsigned", "l": "unsigned long long", "h": "unsigned short", "f": "float"}
_TYPES = {"b16": "h", "u16": "h", "s16": "h", "b32": "r", "u32": "r", "s32": "r", "b64": "l", "u64": "l", "s64": "l"}
_DEFAULT_ALIGNMENT = 16  # alignment of dynamic shared memory, unless its declaration requires more


def translate(preprocessed: str) -> str:
    """Translates a preprocessed source. Raises UnknownDeviceCode if it uses a feature that the emulation lacks."""
    text, alignment = _shared_variables(_assembly(preprocessed))
    return text + _table(preprocessed) + f'\nextern "C" const unsigned octet_emulated_alignment = {alignment};\n'


def _keep_lines(before: str, after: str) -> str:
    return after.replace("\n", " ") + "\n" * before.count("\n")


def _shared_variables(text: str) -> tuple[str, int]:
    alignments = [_DEFAULT_ALIGNMENT]

    def rewrite(match: re.Match[str]) -> str:
        declaration = match[2]
        declared = _DECLARED.fullmatch(declaration)
        if declared is None or "," in declared["type"].split(">")[-1] or "=" in declaration:
            raise UnknownDeviceCode(f"a shared declaration with more or less than one name: {declaration}")
        name = declared["name"]
        if not match[1]:
            inside = _ALIGNED.sub(r"__attribute__((aligned(\1))) ", declaration)  # alignas may not follow `static`
            made = f"static {inside}; ::octet_emulated::shared_variable(&{name}, sizeof {name});"
            return _keep_lines(match[0], made)
        for request in _ALIGNED.findall(declared["type"]):
            if not request.isdecimal():
                raise UnknownDeviceCode(f"the alignment {request} of dynamic shared memory is not a literal")
            alignments.append(int(request))
        element = _ALIGNED.sub("", declared["type"]).strip()
        pointer = f"{element}* const {name} = ({element}*)(::octet_emulated::dynamic_shared + octet_shared_alignment);"
        return _keep_lines(match[0], pointer)

    rewritten = _SHARED.sub(rewrite, text)
    return f"constexpr unsigned octet_shared_alignment = {max(alignments)};" + "\n" + rewritten, max(alignments)


def _table(text: str) -> str:
    kernels = list(_KERNEL.finditer(text))
    if not kernels:
        raise UnknownDeviceCode('no extern "C" __global__ function')
    lines = []
    for kernel in kernels:
        name, bounds = kernel["name"], (kernel["bounds"] or "1024").split(",")[0]
        caller = f"octet_emulated::Caller<decltype(&{name})>"
        call = f"[](void* const* operands) {{ {caller}::call({name}, operands); }}"
        lines.append(f'{{"{name}", {call}, {bounds}, {caller}::written, {caller}::count}}')
    rows = ",\n".join(lines)
    return (
        '\n# 1 "the table of kernels"\n'
        f'extern "C" const octet_emulated::Kernel octet_emulated_kernels[] = {{{rows}}};\n'
        f'extern "C" const unsigned octet_emulated_kernel_count = {len(kernels)};\n'
    )


def _assembly(text: str) -> str:
    pieces, done, numbers = [], 0, count()
    for match in _ASM.finditer(text):
        if match.start() < done:
            continue
        end = _closing(text, match.end())
        semicolon = re.compile(r"\s*;").match(text, end)
        if semicolon is None:
            raise UnknownDeviceCode(f"no ; after {text[match.start() : end]}")
        whole = text[match.start() : semicolon.end()]
        pieces += [text[done : match.start()], _keep_lines(whole, _statement(text[match.end() + 1 : end - 1], numbers))]
        done = semicolon.end()
    return "".join([*pieces, text[done:]])


def _closing(text: str, opening: int) -> int:
    """Returns the index after the parenthesis that closes the one at `opening`. Parentheses in strings are ignored."""
    depth, at = 0, opening
    while at < len(text):
        if literal := _LITERAL.match(text, at):
            at = literal.end()
            continue
        depth += {"(": 1, ")": -1}.get(text[at], 0)
        at += 1
        if not depth:
            return at
    raise UnknownDeviceCode("a parenthesis of an asm statement is not closed")


def _sections(inside: str) -> list[str]:
    """Splits an asm statement into its text, outputs, inputs and clobbers."""
    parts, depth, start, at = [], 0, 0, 0
    while at < len(inside):
        if literal := _LITERAL.match(inside, at):
            at = literal.end()
            continue
        depth += {"(": 1, ")": -1, "[": 1, "]": -1}.get(inside[at], 0)
        if inside[at] == ":" and not depth:
            parts.append(inside[start:at])
            start = at + 1
        at += 1
    return [*parts, inside[start:]]


def _operands(section: str) -> Iterator[tuple[str, str]]:
    """Yields the constraint and the expression of each operand in `"constraint"(expression), …`."""
    rest = section.strip()
    while rest:
        literal = _LITERAL.match(rest)
        if literal is None or not (behind := rest[literal.end() :].lstrip()).startswith("("):
            raise UnknownDeviceCode(f"the operands of an asm statement: {section.strip()}")
        end = _closing(behind, 0)
        yield literal[0][1:-1], behind[1 : end - 1]
        rest = behind[end:].lstrip().removeprefix(",").lstrip()


def _statement(inside: str, numbers: Iterator[int]) -> str:
    template, outputs, inputs, *_ = [*_sections(inside), "", "", ""]
    code = "".join(literal[1:-1] for literal in _LITERAL.findall(template)).encode().decode("unicode_escape")
    prefix = f"octet_{next(numbers)}_"
    before: list[str] = []
    after: list[str] = []
    registers: list[str] = []
    for constraint, expression in _operands(outputs):
        name, kind = f"{prefix}{len(registers)}", _kind(constraint.lstrip("=+&"))
        before.append(f"auto& {name}_out = ({expression});")
        initial = f"::octet_emulated::bits<{kind}>({name}_out)" if "+" in constraint else f"({kind})0x7f7f7f7f"
        before.append(f"{kind} {name} = {initial};")
        after.append(f"{name}_out = ::octet_emulated::bits<::octet_emulated::Plain<decltype({name}_out)>>({name});")
        registers.append(name)
    for constraint, expression in _operands(inputs):
        name = f"{prefix}{len(registers)}"
        if constraint == "n":
            before.append(f"constexpr auto {name} = ({expression});")
        else:
            kind = _kind(constraint)
            before.append(f"const {kind} {name} = ::octet_emulated::bits<{kind}>({expression});")
        registers.append(name)
    return f"{{ {' '.join([*before, _instructions(code, registers, prefix), *after])} }}"


def _kind(constraint: str) -> str:
    if constraint not in _CONSTRAINTS:
        raise UnknownDeviceCode(f'the constraint "{constraint}" of an asm statement')
    return _CONSTRAINTS[constraint]


def _instructions(code: str, registers: list[str], prefix: str) -> str:
    """Translates PTX to C++ statements. Instructions are separated by `;`, and scopes are in `{}`."""
    code = re.sub(r"/\*.*?\*/|//[^\n]*", " ", code, flags=re.DOTALL)
    code = re.sub(r"%(\d+)", lambda match: _numbered(registers, int(match[1])), code.replace("%%", "%"))
    written = []
    for part in code.split(";"):
        text = part.strip()
        while text[:1] in ("{", "}") and text:  # a vector never begins an instruction
            written.append(text[0])
            text = text[1:].lstrip()
        if text:
            written.append(_instruction(text, prefix))
    return " ".join(written)


def _numbered(registers: list[str], number: int) -> str:
    if number >= len(registers):
        raise UnknownDeviceCode(f"an asm statement of {len(registers)} operands uses %{number}")
    return registers[number]


def _instruction(text: str, prefix: str) -> str:
    if declared := re.fullmatch(r"\.reg\s+\.(\w+)\s+(.+)", text):
        kind = "bool" if declared[1] == "pred" else _CONSTRAINTS["f" if declared[1] == "f32" else _TYPES[declared[1]]]
        return f"{kind} {', '.join(_local(name.strip(), prefix) for name in declared[2].split(','))};"
    guard = ""
    if guarded := re.match(r"@(!?)\s*(\w+)\s+", text):
        guard, text = f"if ({guarded[1]}{_local(guarded[2], prefix)}) ", text[guarded.end() :]
    opcode, _, rest = text.partition(" ")
    operands = tuple(_operand(each, prefix) for each in _split(rest))
    return guard + statement(opcode.strip(), operands)


def _split(rest: str) -> list[str]:
    """Splits operands at commas outside of braces and brackets."""
    parts = re.findall(r"\{[^}]*\}|\[[^\]]*\]|[^,\s][^,]*", rest.strip())
    return [part.strip() for part in parts]


def _operand(text: str, prefix: str) -> Operand:
    if text.startswith("{"):
        names = tuple(_local(each.strip(), prefix) for each in text[1:-1].split(","))
        return Operand("", vector=names)
    if text.startswith("["):
        base, _, offset = text[1:-1].partition("+")
        return Operand(f"({_local(base.strip(), prefix)} + {offset.strip() or '0'})", address=True)
    return Operand(_local(text, prefix))


def _local(name: str, prefix: str) -> str:
    """Returns the C++ variable of a register, or a constant in C++ syntax."""
    if name.startswith(prefix):
        return name
    if single := re.fullmatch(r"0[fF]([0-9a-fA-F]{8})", name):
        return f"__builtin_bit_cast(float, 0x{single[1]}u)"
    if re.fullmatch(r"-?(0[xX][0-9a-fA-F]+|\d+)U?", name):
        return name
    if not re.fullmatch(r"[A-Za-z_]\w*", name):
        raise UnknownDeviceCode(f"the operand {name} of inline assembly")
    return f"{prefix}{name}"
