"""The messages of the Open Inference Protocol over gRPC, and what the control plane answers of its methods."""
