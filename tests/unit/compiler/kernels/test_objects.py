"""Objects with the code of several GPUs."""

from __future__ import annotations

from pathlib import Path

from service.compiler.kernels.objects import compile_program
from service.compiler.targets import codegen_target
from service.core.elf import check_object
from service.core.target import TARGETS
from tests.support.cuda.machine_code import needs_nvrtc

SEVERAL = [target for target in TARGETS if target.device == "cuda" and len(target.features) > 1]


@needs_nvrtc
def test_an_object_has_code_for_each(tmp_path: Path) -> None:
    path = tmp_path / "kernel.o"
    source = 'extern "C" __global__ void OCTET_KERNEL(int* x) { x[threadIdx.x] = 1; }'
    compile_program(source, "octet_one", codegen_target(SEVERAL[0]), path)
    made = path.read_bytes()
    check_object(made, "x86_64", defines="octet_one")
    for capability in codegen_target(SEVERAL[0]).cards:
        assert f"octet_one.{capability}\0".encode() in made
