"""Checks that liboctet_python requires only CPython's stable ABI of 3.11 from the interpreter that loads it."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest

import service.native
from tests.support.dynamic_symbols import dynamic_symbols

_NATIVE = Path(service.native.__file__ or "").parent
_LIBRARY, _HEADER = _NATIVE / "liboctet_python.so", _NATIVE / "python" / "cpython.h"
_PYTHON_H = Path(sysconfig.get_path("include"), "Python.h")

_DECLARATION = re.compile(r"^([\w*]+(?: [\w*]+)*?)[ ](Py\w+)\(([^;]*)\);$", re.MULTILINE)
_STRUCT = re.compile(r"^struct (\w+) \{\n(.*?)^\};", re.MULTILINE | re.DOTALL)
_MEMBER = re.compile(r"^  [^;]*?(\w+)(?:\)\([^;]*\))?;$", re.MULTILINE)
_CONSTANT = re.compile(r"^constexpr \w+ (\w+) =", re.MULTILINE)
_RENAMED = {"ob_refcnt", "ob_type"}  # members of PyObject; only their sizes are important


def test_the_library_exports_one_function() -> None:
    assert dynamic_symbols(_LIBRARY).defined == {"octet_python_functions"}


def test_the_library_needs_the_runtime_and_the_c_library() -> None:
    needed = {name.split(".so")[0] for name in dynamic_symbols(_LIBRARY).libraries}
    assert needed <= {"liboctet_runtime", "libc", "libm", "libdl", "libpthread"}
    assert "liboctet_runtime" in needed


def test_the_library_imports_exactly_the_symbols_of_its_header() -> None:
    wanted = {name for name in dynamic_symbols(_LIBRARY).wanted if "Py" in name}
    assert wanted == {name for _, name, _ in _DECLARATION.findall(_HEADER.read_text())} | {"_Py_NoneStruct"}


def test_this_interpreter_defines_all_required_symbols() -> None:
    for name in dynamic_symbols(_LIBRARY).wanted:
        if "Py" in name:
            assert hasattr(ctypes.pythonapi, name)


@pytest.mark.skipif(not _PYTHON_H.is_file(), reason=f"NOT TESTED against Python.h, since there is no {_PYTHON_H}")
@pytest.mark.skipif(shutil.which("g++") is None, reason="NOT TESTED against Python.h, since there is no g++")
def test_the_declarations_equal_those_of_the_limited_api(tmp_path: Path) -> None:
    """Compares types, sizes and constants with those of Python's own header, limited to the stable ABI of 3.11, by
    compiling them.
    """
    header = _HEADER.read_text()
    facts = _facts(header)
    source = [
        "#define Py_LIMITED_API 0x030b0000",
        "#include <Python.h>",
        "#include <cstddef>",
        "#include <type_traits>",
        *(f'static_assert({expression} == {value}, "{expression}");' for expression, value in _values(facts, tmp_path)),
        *(
            f'static_assert(std::is_same_v<decltype({name}), {result}({parameters})>, "{name}");'
            for result, name, parameters in _DECLARATION.findall(header)
        ),
        'static_assert(std::is_same_v<decltype(_Py_NoneStruct), PyObject>, "None");',
    ]
    assert len(source) > 50
    (tmp_path / "limited.cc").write_text("\n".join(source) + "\n")
    command = ["g++", "-std=c++17", "-fsyntax-only", f"-I{_PYTHON_H.parent}", str(tmp_path / "limited.cc")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def _facts(header: str) -> list[str]:
    """Returns expressions about the types and constants that the header declares."""
    facts = _CONSTANT.findall(header)
    for name, members in _STRUCT.findall(header):
        facts.append(f"sizeof({name})")
        facts += [f"offsetof({name}, {member})" for member in _MEMBER.findall(members) if member not in _RENAMED]
    return facts


def _values(facts: list[str], folder: Path) -> list[tuple[str, int]]:
    """Returns the value of each expression with our header."""
    prints = "".join(f'std::printf("%ld\\n", (long)({fact}));' for fact in facts)
    (folder / "ours.cc").write_text(f'#include <cstdio>\n#include "cpython.h"\nint main() {{ {prints} }}\n')
    program = folder / "ours"
    command = ["g++", "-std=c++17", f"-I{_HEADER.parent}", str(folder / "ours.cc"), "-o", str(program)]
    subprocess.run(command, check=True)
    printed = subprocess.run([program], check=True, capture_output=True, text=True).stdout.split()
    return list(zip(facts, map(int, printed), strict=True))
