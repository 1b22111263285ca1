"""The data plane over gRPC."""
