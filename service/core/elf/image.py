"""A shared library as the dynamic loader would map it."""

from __future__ import annotations

from service.core.elf.reader import ElfError, ElfFile, Segment

_LOAD, _DYNAMIC, _INTERPRETER, _PHDR, _THREAD = 1, 2, 3, 6, 7
_EH_FRAME, _STACK, _RELRO = 0x6474E550, 0x6474E551, 0x6474E552
_RISCV_ATTRIBUTES = 0x70000003  # describes the CPU that the code is for; no loader reads it
_NAMES = {_INTERPRETER: "names an interpreter (PT_INTERP)", _THREAD: "has thread-local data (PT_TLS)"}
_EXECUTE, _WRITE, _READ = 1, 2, 4
_PAGES = {0x1000, 0x10000}  # alignments that LLD uses: x86-64, AArch64
_MOST_BYTES = 1 << 32


class Image:
    """The segments of a library at their addresses in memory.

    Attributes:
        dynamic: the segment of the dynamic section.

    Raises:
        ElfError: a segment is both writable and executable, is outside the file, overlaps another, or is not allowed.
    """

    def __init__(self, file: ElfFile) -> None:
        self.file = file
        self._loads = [segment for segment in file.segments if segment.kind == _LOAD]
        self._check_loads()
        self.dynamic = self._only(_DYNAMIC)
        if self._only(_STACK).flags & _EXECUTE:
            raise ElfError("its stack is executable")
        for segment in file.segments:
            if segment.kind != _LOAD:
                self._check_part(segment)

    def at(self, address: int, size: int, what: str) -> bytes:
        """Returns the `size` bytes that the loader maps from the file to `address`. Ignores the address if `size` is 0.

        Raises:
            ElfError: the bytes are not all in one read-only segment.
        """
        return self.from_address(address, what, size)[:size] if size else b""

    def from_address(self, address: int, what: str, size: int = 1) -> bytes:
        """Returns the bytes that are mapped from the file, from `address` to the end of the segment.

        Raises:
            ElfError: there are fewer than `size` bytes, or the segment is writable.
        """
        for load in self._loads:
            skipped = address - load.address
            if not load.flags & _WRITE and skipped >= 0 and skipped + size <= load.file_bytes:
                return self.file.range(load.offset + skipped, load.file_bytes - skipped, what)
        raise ElfError(f"{what} is not in a read-only segment")

    def content(self, segment: Segment) -> bytes:
        """Returns the bytes of a segment in the file."""
        return self.file.range(segment.offset, segment.file_bytes, "a segment")

    def holds(self, address: int, size: int) -> bool:
        """Returns true if these bytes are mapped."""
        return any(load.holds(address, size) for load in self._loads)

    def is_data(self, address: int, size: int) -> bool:
        """Returns true if these bytes are mapped in a writable segment."""
        return any(load.flags & _WRITE and load.holds(address, size) for load in self._loads)

    def _only(self, kind: int) -> Segment:
        found = [segment for segment in self.file.segments if segment.kind == kind]
        if len(found) != 1:
            raise ElfError(f"it has {len(found)} segments of type {kind:#x}, not one")
        return found[0]

    def _check_loads(self) -> None:
        next_page = 0
        for load in self._loads:
            self.content(load)
            if load.alignment not in _PAGES or (load.address - load.offset) % load.alignment:
                raise ElfError("a segment is not aligned to pages")
            # The loader maps whole pages, and replaces pages that it mapped before.
            if load.address // load.alignment * load.alignment < next_page or load.file_bytes > load.memory_bytes:
                raise ElfError("a segment overlaps another")
            if load.flags & _WRITE and load.flags & _EXECUTE:
                raise ElfError("a segment is writable and executable")
            if not load.flags & _READ or load.flags > (_READ | _WRITE | _EXECUTE) or load.end > _MOST_BYTES:
                raise ElfError("a segment cannot be mapped")
            next_page = -(-load.end // load.alignment) * load.alignment

    def _check_part(self, segment: Segment) -> None:
        """Checks a segment that is not mapped itself, but describes a part of one that is."""
        if segment.kind in _NAMES:
            raise ElfError(f"it {_NAMES[segment.kind]}")
        if segment.kind not in (_PHDR, _DYNAMIC, _EH_FRAME, _STACK, _RELRO, _RISCV_ATTRIBUTES):
            raise ElfError(f"it has a segment of type {segment.kind:#x}")
        if segment.kind in (_STACK, _RISCV_ATTRIBUTES):
            return
        if segment.kind == _PHDR and segment.offset != self.file.segments_at:
            raise ElfError("it has two program header tables")
        is_writable = segment.kind in (_DYNAMIC, _RELRO)
        if not any(_lies_in(segment, load) for load in self._loads if bool(load.flags & _WRITE) == is_writable):
            raise ElfError(f"a segment of type {segment.kind:#x} is not inside a mapped segment")


def _lies_in(part: Segment, load: Segment) -> bool:
    """Returns true if `part` is inside `load`, both in the file and in memory."""
    skipped = part.address - load.address
    in_file = skipped == part.offset - load.offset and skipped + part.file_bytes <= load.file_bytes
    return in_file and part.file_bytes <= part.memory_bytes and load.holds(part.address, part.memory_bytes)
