"""Schemas of the routes that clients of OpenAI's API, and of the usual API of rerankers, use."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from service.api.control.wire.base import Wire


class EmbeddingRequest(Wire):
    """The texts to embed, as clients of OpenAI's API send them."""

    model: str = Field(description="The model's name.")
    input: str | list[str] | list[int] | list[list[int]] = Field(
        description="A text, several texts, or the token ids of one or several."
    )
    encoding_format: Literal["float", "base64"] = Field(
        "float", description="`base64` is the vector as little-endian float32."
    )
    dimensions: int | None = Field(None, ge=1, description="Return so many numbers of each vector, the first ones.")
    prompt_name: str | None = Field(
        None,
        max_length=4096,
        description="The name of the prompt to put before each text, such as `query`; the default one if missing.",
    )
    user: str | None = Field(None, description="Ignored.")


class Embedding(Wire):
    object: Literal["embedding"] = "embedding"
    index: int = Field(description="The place of the text in the request.")
    embedding: list[float] | str
    truncated: bool | None = Field(None, description="True if the text was longer than the model's maximum length.")


class Usage(Wire):
    prompt_tokens: int
    total_tokens: int


class Embeddings(Wire):
    """The vectors, in the order of the texts."""

    object: Literal["list"] = "list"
    data: list[Embedding]
    model: str
    usage: Usage


class OpenAIModel(Wire):
    id: str = Field(description="The model's name.")
    object: Literal["model"] = "model"
    created: int = Field(description="When the version was pushed, in seconds since 1970.")
    owned_by: str = "octet"


class OpenAIModels(Wire):
    object: Literal["list"] = "list"
    data: list[OpenAIModel]


class Document(Wire):
    text: str


class RerankRequest(Wire):
    """A query and documents, in the form that the APIs of Jina, Cohere and OpenVINO Model Server share."""

    model: str = Field(description="The model's name.")
    query: str
    documents: list[str | Document] = Field(description="The documents: strings, or objects with the member `text`.")
    top_n: int | None = Field(None, ge=1, description="Return so many results, the best ones; by default all.")
    return_documents: bool = Field(False, description="Return the documents with their scores.")
    user: str | None = Field(None, description="Ignored.")


class Ranked(Wire):
    index: int = Field(description="The place of the document in the request, from 0.")
    relevance_score: float
    document: Document | None = None
    truncated: bool | None = Field(
        None, description="True if the query and the document together were longer than the model's maximum length."
    )


class Ranking(Wire):
    """The documents by their scores, best first."""

    object: Literal["list"] = "list"
    model: str
    results: list[Ranked]
    usage: Usage
