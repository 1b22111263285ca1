"""The task, the labels and the scores of a model, from `config.json` of transformers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from service.compiler.importers.published.files import Folder
from service.core.errors import Unsupported
from service.core.models.metadata import MAX_LABELS, ModelMetadata
from service.core.models.task import Activation, Task
from service.core.printable import printable

CONFIG = "config.json"
MODULES = "modules.json"  # only models of sentence-transformers have it
SENTENCES_CONFIG = "config_sentence_transformers.json"

# The end of an architecture's name, such as `BertForTokenClassification`.
_TASKS: Mapping[str, Task] = {
    "ForSequenceClassification": Task.CLASSIFY,
    "ForTokenClassification": Task.CLASSIFY_TOKENS,
    "ForImageClassification": Task.CLASSIFY_IMAGES,
    "ForImageClassificationWithTeacher": Task.CLASSIFY_IMAGES,
    "ForObjectDetection": Task.DETECT,
}
# The classes of torch whose names sentence-transformers stores.
_ACTIVATIONS: Mapping[str, Activation] = {
    "Identity": Activation.NONE,
    "Sigmoid": Activation.SIGMOID,
    "Softmax": Activation.SOFTMAX,
    "Tanh": Activation.TANH,
}


def read_configuration(folder: Folder) -> ModelMetadata:
    """Returns the task, the labels and the activation that the folder defines; members that it leaves open are missing.

    A classifier with one label is a reranker, because one label gives one score for a pair of texts.

    Raises:
        InvalidInput: the file is not a JSON object.
        Unsupported: the scores of the model are a function of its outputs that Octet does not compute.
    """
    config, sentences = folder.json(CONFIG), folder.json(SENTENCES_CONFIG)
    labels = _labels(config)
    is_cross_encoder = sentences.get("model_type") == "CrossEncoder"
    task = _task(folder, config, labels)
    if is_cross_encoder and task is not Task.CLASSIFY:
        task = Task.RERANK
    elif MODULES in folder and not is_cross_encoder:
        task = Task.EMBED
    return ModelMetadata(
        labels=() if task in (Task.EMBED, Task.RERANK) else labels,
        task=task,
        activation=_activation(config, sentences, task, labels),
    )


def _task(folder: Folder, config: Mapping[str, Any], labels: tuple[str, ...]) -> Task | None:
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


def _activation(
    config: Mapping[str, Any], sentences: Mapping[str, Any], task: Task | None, labels: tuple[str, ...]
) -> Activation | None:
    match task:
        case Task.RERANK:
            return _cross_encoder_activation(config, sentences) or Activation.SIGMOID
        case Task.CLASSIFY if (activation := _cross_encoder_activation(config, sentences)) is not None:
            return activation
        case Task.CLASSIFY if config.get("problem_type") == "regression":
            return Activation.NONE
        case Task.CLASSIFY:
            is_independent = config.get("problem_type") == "multi_label_classification" or len(labels) == 1
            return Activation.SIGMOID if is_independent else Activation.SOFTMAX
        case Task.CLASSIFY_TOKENS | Task.CLASSIFY_IMAGES:
            return Activation.SOFTMAX
    return None


def _cross_encoder_activation(config: Mapping[str, Any], sentences: Mapping[str, Any]) -> Activation | None:
    """Returns the activation that the CrossEncoder of sentence-transformers stores as the name of a class of torch.
    Returns None without one: it then computes a sigmoid of a single score, and transformers a softmax of several.
    """
    nested = config.get("sentence_transformers")
    name = sentences.get("activation_fn") or (nested.get("activation_fn") if isinstance(nested, dict) else None)
    name = name or config.get("sbert_ce_default_activation_function")
    if not isinstance(name, str):
        return None
    found = _ACTIVATIONS.get(name.rpartition(".")[2])
    if found is None:
        raise Unsupported(
            f"the folder names the function {printable(name)} for scores, which Octet does not compute",
            hint=f"the functions are {', '.join(_ACTIVATIONS)}; remove the member to get the default",
        )
    return found
