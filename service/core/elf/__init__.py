"""Checks compiled code before it is linked or loaded.

`check_object` checks an object file before the linker reads it, `check_library` a shared library before the dynamic
loader maps it. The files were written by a process that has read an upload, so every offset is checked before it is
used. Both functions make sure that loading runs no code of the file: it has no initializers, finalizers or resolvers,
names no other library, and no relocation writes outside its own data. Neither function can check what the code does
when it is *called*.

Format: the System V ABI (gABI, chapters 4 and 5), and its supplements for x86-64, AArch64 and RISC-V.
"""

from service.core.elf.library import check_library
from service.core.elf.names import MACHINES
from service.core.elf.objects import check_object
from service.core.elf.reader import ElfError
from service.core.elf.writer import data_object

__all__ = ["MACHINES", "ElfError", "check_library", "check_object", "data_object"]
