"""The sandbox of the compiler's children. It assumes that the upload that a child reads is hostile.

`run_child` runs a role of `service.compiler.children.child` in a process. The process can access only the files in its
`Access`, use only the resources in its `Limits`, and compute. `check` reports which sandbox features the running kernel
has. This package does not import TVM.
"""

from service.compiler.sandbox.check import Finding, check
from service.compiler.sandbox.gpus import with_gpus
from service.compiler.sandbox.policy import Access, Limits, working
from service.compiler.sandbox.process import Fork
from service.compiler.sandbox.report import Report
from service.compiler.sandbox.run import run_child, run_program
from service.compiler.sandbox.scratch import scratch_directory
from service.compiler.sandbox.zygotes import shut_down, warm

__all__ = [
    "Access",
    "Finding",
    "Fork",
    "Limits",
    "Report",
    "check",
    "run_child",
    "run_program",
    "scratch_directory",
    "shut_down",
    "warm",
    "with_gpus",
    "working",
]
