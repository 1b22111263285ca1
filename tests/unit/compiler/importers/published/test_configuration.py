"""Tests of the task, the labels and the scores that `config.json` defines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from service.compiler.importers.published.configuration import read_configuration
from service.core.errors import Unsupported
from service.core.models.task import Activation, Task
from tests.support.published_model import BERT, TOKENIZER, write

TWO = {"id2label": {"0": "NEGATIVE", "1": "POSITIVE"}}
ONE = {"id2label": {"0": "LABEL_0"}}


def config(architecture: str, **members: Any) -> dict[str, Any]:
    return {"architectures": [architecture], **members}


@pytest.mark.parametrize(
    ("members", "task", "activation"),
    [
        (config("BertForSequenceClassification", **TWO), Task.CLASSIFY, Activation.SOFTMAX),
        (
            config("BertForSequenceClassification", problem_type="multi_label_classification", **TWO),
            Task.CLASSIFY,
            Activation.SIGMOID,
        ),
        (config("BertForSequenceClassification", **ONE), Task.RERANK, Activation.SIGMOID),
        (
            config(
                "XLMRobertaForSequenceClassification",
                sentence_transformers={"activation_fn": "torch.nn.modules.linear.Identity"},
                **ONE,
            ),
            Task.RERANK,
            Activation.NONE,
        ),
        (
            config(
                "BertForSequenceClassification",
                sbert_ce_default_activation_function="torch.nn.modules.linear.Identity",
                **ONE,
            ),
            Task.RERANK,
            Activation.NONE,
        ),
        (
            config("Qwen3ForSequenceClassification", sbert_ce_default_activation_function="torch.nn.Tanh", **ONE),
            Task.RERANK,
            Activation.TANH,
        ),
        (
            config(
                "BertForSequenceClassification", sentence_transformers={"activation_fn": "torch.nn.Identity"}, **TWO
            ),
            Task.CLASSIFY,
            Activation.NONE,
        ),
        (config("BertForSequenceClassification", problem_type="regression", **TWO), Task.CLASSIFY, Activation.NONE),
        (config("BertForTokenClassification", **TWO), Task.CLASSIFY_TOKENS, Activation.SOFTMAX),
        (config("ViTForImageClassification", **TWO), Task.CLASSIFY_IMAGES, Activation.SOFTMAX),
        (config("DetrForObjectDetection", **TWO), Task.DETECT, None),
        (BERT, Task.EMBED, None),
        (config("T5Model", is_encoder_decoder=True), None, None),
        (config("LlamaForCausalLM"), None, None),
        ({"architectures": 7}, None, None),
        ({}, None, None),
    ],
)
def test_the_architecture_defines_the_task(
    tmp_path: Path, members: dict[str, Any], task: Task | None, activation: Activation | None
) -> None:
    found = read_configuration(write(tmp_path, {"config.json": members, "tokenizer.json": TOKENIZER}))
    assert (found.task, found.activation) == (task, activation)
    assert found.labels == (
        ("NEGATIVE", "POSITIVE") if task and "id2label" in members and members["id2label"] == TWO["id2label"] else ()
    )


def test_a_model_of_sentence_transformers_embeds_whatever_its_architecture_is(tmp_path: Path) -> None:
    folder = write(tmp_path, {"config.json": config("Qwen3ForCausalLM"), "modules.json": []})
    assert read_configuration(folder).task is Task.EMBED


@pytest.mark.parametrize(
    ("members", "sentences", "task", "activation"),
    [
        (config("BertForSequenceClassification", **ONE), {}, Task.RERANK, Activation.SIGMOID),
        (config("ModernBertModel"), {"activation_fn": "torch.nn.Identity"}, Task.RERANK, Activation.NONE),
        (config("BertForSequenceClassification", **TWO), {}, Task.CLASSIFY, Activation.SOFTMAX),
    ],
)
@pytest.mark.parametrize("files", [{}, {"modules.json": []}])
def test_a_cross_encoder_of_sentence_transformers_ranks(
    tmp_path: Path, members: Any, sentences: Any, task: Task, activation: Activation, files: Any
) -> None:
    sentences = {"model_type": "CrossEncoder", **sentences}
    folder = write(tmp_path, {"config.json": members, "config_sentence_transformers.json": sentences, **files})
    found = read_configuration(folder)
    assert (found.task, found.activation) == (task, activation)


def test_an_activation_that_is_not_computed_is_refused(tmp_path: Path) -> None:
    members = config("BertForSequenceClassification", sentence_transformers={"activation_fn": "my.own.Function"}, **ONE)
    with pytest.raises(Unsupported, match=r"the function my\.own\.Function"):
        read_configuration(write(tmp_path, {"config.json": members}))


def test_a_missing_label_is_the_number_of_its_class(tmp_path: Path) -> None:
    members = config("DetrForObjectDetection", id2label={"1": "person", "3": "car", "x": "y"})
    assert read_configuration(write(tmp_path, {"config.json": members})).labels == ("0", "person", "2", "car")


def test_a_huge_class_number_gives_no_labels(tmp_path: Path) -> None:
    members = config("ViTForImageClassification", id2label={"999999999999": "x"})
    assert read_configuration(write(tmp_path, {"config.json": members})).labels == ()
