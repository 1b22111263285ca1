"""The data plane over gRPC: `inference.GRPCInferenceService` of the Open Inference Protocol, and `grpc.health.v1`.

It translates only: what a request may be, admission, the queue and the models are those of `service.api.oip`. It runs
on the event loop of the HTTP server, on a port of its own. A process that only reserves that port imports `port`,
without gRPC.
"""
