"""The task, the labels and the scores of a model, from `config.json` of transformers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from service.compiler.importers.published.files import Folder
from service.core.models.metadata import MAX_LABELS, ModelMetadata
from service.core.models.task import Activation, Task

CONFIG = "config.json"
MODULES = "modules.json"  # only models of sentence-transformers have it

# The end of an architecture's name, such as `BertForTokenClassification`.
_TASKS: Mapping[str, Task] = {
    "ForSequenceClassification": Task.CLASSIFY,
    "ForTokenClassification": Task.CLASSIFY_TOKENS,
    "ForImageClassification": Task.CLASSIFY_IMAGES,
    "ForImageClassificationWithTeacher": Task.CLASSIFY_IMAGES,
    "ForObjectDetection": Task.DETECT,
}
_ACTIVATIONS: Mapping[str, Activation] = {"Identity": Activation.NONE, "Sigmoid": Activation.SIGMOID}


def read_configuration(folder: Folder) -> ModelMetadata:
    """Returns the task, the labels and the activation that the folder defines; members that it leaves open are missing.

    A classifier with one label is a reranker, because one label gives one score for a pair of texts.

    Raises:
        InvalidInput: the file is not a JSON object.
    """
    config = folder.json(CONFIG)
    labels = _labels(config)
    task = _task(folder, config, labels)
    return ModelMetadata(
        labels=() if task in (Task.EMBED, Task.RERANK) else labels,
        task=task,
        activation=_activation(config, task, labels),
    )


def _task(folder: Folder, config: Mapping[str, Any], labels: tuple[str, ...]) -> Task | None:
    if MODULES in folder:
        return Task.EMBED
    architectures = config.get("architectures")
    names = [name for name in architectures if isinstance(name, str)] if isinstance(architectures, list) else []
    for name in names:
        for end, task in _TASKS.items():
            if name.endswith(end):
                is_reranker = task is Task.CLASSIFY and (len(labels) == 1 or config.get("num_labels") == 1)
                return Task.RERANK if is_reranker else task
    is_encoder = any(name.endswith("Model") for name in names) and not config.get("is_encoder_decoder")
    return Task.EMBED if is_encoder and "tokenizer.json" in folder else None


def _labels(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns the labels of `id2label`. A class that it leaves out is called by its number."""
    named = config.get("id2label")
    if not isinstance(named, dict):
        return ()
    found = {int(key): value for key, value in named.items() if key.isdecimal() and isinstance(value, str)}
    size = max(found, default=-1) + 1
    return tuple(found.get(index, str(index)) for index in range(size)) if size <= MAX_LABELS else ()


def _activation(config: Mapping[str, Any], task: Task | None, labels: tuple[str, ...]) -> Activation | None:
    match task:
        case Task.RERANK:
            return _reranker_activation(config)
        case Task.CLASSIFY:
            is_independent = config.get("problem_type") == "multi_label_classification" or len(labels) == 1
            return Activation.SIGMOID if is_independent else Activation.SOFTMAX
        case Task.CLASSIFY_TOKENS | Task.CLASSIFY_IMAGES:
            return Activation.SOFTMAX
    return None


def _reranker_activation(config: Mapping[str, Any]) -> Activation:
    """Returns the activation that sentence-transformers stores as the name of a class of torch; by default, its
    CrossEncoder computes a sigmoid.
    """
    nested = config.get("sentence_transformers")
    name = nested.get("activation_fn") if isinstance(nested, dict) else None
    name = name or config.get("sbert_ce_default_activation_function")
    return _ACTIVATIONS.get(str(name).rpartition(".")[2], Activation.SIGMOID)
