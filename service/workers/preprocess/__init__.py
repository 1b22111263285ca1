"""The preprocessing process: it converts pictures to tensors for a data plane.

The process is locked in before it receives a byte: it has no network, no files but installed code, and starts no
program. docs/adr/0067 describes it.
"""
