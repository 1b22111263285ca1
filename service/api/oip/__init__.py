"""The control plane's part of the Open Inference Protocol: the model repository. The data plane implements the rest."""
