"""The messages of the Open Inference Protocol over gRPC, and the methods that the control plane answers."""
