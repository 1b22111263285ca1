"""The families of kernels that a kernel library consists of. A family computes the groups of some core operators."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from service.compiler.kernels.choices import Choices
from service.compiler.kernels.group import Demand, Group, shape_of
from service.compiler.kernels.kernel import Declined, Kernel
from service.compiler.kernels.layout import Image
from service.compiler.qnn.numerics import Mode


class Family:
    """The kernels for one type of group. The methods are those of `KernelLibrary`.

    Attributes:
        takes_tokens: true if the kernels compute each pixel independently. They can then also compute a tensor
            `[N, T, C]`, each of whose tokens is treated as a pixel.
    """

    takes_tokens = False

    def __init__(self, mode: Mode, choices: Choices | None = None) -> None:
        self.mode, self.choices = mode, choices or Choices()

    def demands(self, group: Group, produced: Sequence[bool]) -> list[Demand]:
        raise NotImplementedError

    def places(self, group: Group) -> list[int | None]:
        return [None] * len(group.inputs)

    def kernel(
        self, group: Group, sources: Sequence[Image], destination: Image, placed: Collection[int] = ()
    ) -> Kernel:
        raise NotImplementedError


class Families:
    """The part of a `KernelLibrary` that consists of families.

    Args:
        families: maps the name of a group's core operator to the family that computes the group.
    """

    def __init__(self, families: Mapping[str, Family]) -> None:
        self._families = families

    def demands(self, group: Group, produced: Sequence[bool]) -> list[Demand]:
        family = self._family(group)
        if not family.takes_tokens and any(len(shape_of(var)) == 3 for var in (*group.inputs, group.output)):
            raise Declined(f"{group.output.name} is of rank 3, not an image")
        return family.demands(group, produced)

    def places(self, group: Group) -> list[int | None]:
        return self._family(group).places(group)

    def kernel(
        self, group: Group, sources: Sequence[Image], destination: Image, placed: Collection[int] = ()
    ) -> Kernel:
        return self._family(group).kernel(group, sources, destination, placed)

    def _family(self, group: Group) -> Family:
        family = self._families.get(group.core.name)
        if family is None:
            raise Declined("no kernel computes this operator")
        return family
