"""What the control plane answers of the Open Inference Protocol: its repository. The rest is the data plane's."""
