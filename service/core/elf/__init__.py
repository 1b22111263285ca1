"""Checks of compiled code before anything links or loads it.

`check_object` admits an object file to the linker, `check_library` a shared library to the dynamic loader. Their writer
is a process that has read an upload, so every offset is checked before it is followed. Both establish that loading runs
no code of the file: there are no initializers, finalizers or resolvers, no other library is named, and no relocation
writes outside the file's own data. What the code does when it is *called* cannot be checked.

Format: the System V ABI (gABI, chapters 4 and 5), and its supplements for x86-64, AArch64 and RISC-V.
"""

from service.core.elf.library import check_library
from service.core.elf.names import MACHINES
from service.core.elf.objects import check_object
from service.core.elf.reader import ElfError
from service.core.elf.writer import data_object

__all__ = ["MACHINES", "ElfError", "check_library", "check_object", "data_object"]
