"""Calls of the prediction protocol with grpcio."""

from __future__ import annotations

from typing import Any

from grpc.aio import Channel

from service.api.grpc import inference_pb2 as pb

NAME = pb.DESCRIPTOR.services_by_name["GRPCInferenceService"].full_name


def infer(channel: Channel) -> Any:
    return channel.unary_unary(
        f"/{NAME}/ModelInfer",
        request_serializer=pb.ModelInferRequest.SerializeToString,
        response_deserializer=pb.ModelInferResponse.FromString,
    )


def stream(channel: Channel) -> Any:
    return channel.stream_stream(
        f"/{NAME}/ModelStreamInfer",
        request_serializer=pb.ModelInferRequest.SerializeToString,
        response_deserializer=pb.ModelStreamInferResponse.FromString,
    )
