"""The control plane's end of what it and the data plane say to each other: docs/adr/0042."""
