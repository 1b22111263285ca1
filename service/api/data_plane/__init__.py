"""The control plane's side of the protocol between control plane and data plane: see docs/adr/0042."""
