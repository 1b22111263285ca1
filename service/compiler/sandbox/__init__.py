"""Locks the compiler's children in: the upload that they read is hostile.

`run_child` starts a role of `service.compiler.children.child` in a process that may touch the files of its `Access`,
use what its `Limits` allow, and otherwise only compute; `check` tells what the running kernel offers for that. Imports
no TVM.
"""

from service.compiler.sandbox.cards import with_cards
from service.compiler.sandbox.check import Finding, check
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
    "with_cards",
    "working",
]
