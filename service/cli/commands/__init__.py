"""The commands of `octet`: one module each.

`local` contains the commands that need no server, `remote` those that are clients of one, and `servers` those that run
as servers. `cli.command_line` registers them.
"""
