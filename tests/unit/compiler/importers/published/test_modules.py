"""Tests of the steps after a model of sentence-transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from service.compiler.importers.published.modules import Dense, Steps, read_steps
from service.core.errors import InvalidInput, Unsupported
from service.core.models.text import Pooling
from tests.support.published_model import safetensors, sentence_transformer, write


def read(root: Path, files: dict[str, Any], *, is_pooled: bool = False) -> Steps:
    return read_steps(write(root, files), is_pooled=is_pooled)


@pytest.mark.parametrize(
    ("config", "pooling"),
    [
        ({"pooling_mode_mean_tokens": False, "pooling_mode_cls_token": True}, (Pooling.CLS,)),
        ({"pooling_mode_mean_tokens": False, "pooling_mode_lasttoken": True, "include_prompt": True}, (Pooling.LAST,)),
        ({"pooling_mode": "cls", "pooling_mode_mean_tokens": False}, (Pooling.CLS,)),
        ({"pooling_mode": "mean_sqrt_len_tokens"}, (Pooling.MEAN_SQRT,)),
        ({"pooling_mode": ["weightedmean", "max"]}, (Pooling.WEIGHTED_MEAN, Pooling.MAX)),
        ({"pooling_mode_cls_token": True, "pooling_mode_max_tokens": True}, (Pooling.CLS, Pooling.MAX, Pooling.MEAN)),
        ({"pooling_mode_mean_tokens": False}, (Pooling.MEAN,)),  # the default of sentence-transformers
    ],
)
def test_the_pooling_is_read(tmp_path: Path, config: dict[str, Any], pooling: tuple[Pooling, ...]) -> None:
    assert read(tmp_path, sentence_transformer(**config)).pooling == pooling


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"pooling_mode": "median"}, "is 'median'"),
        ({"pooling_mode": []}, r"is \[\]"),
        ({"pooling_mode": 5}, "is 5"),
        ({"include_prompt": False}, "leaves the prompt out"),
    ],
)
def test_another_pooling_is_refused_unless_it_is_replaced(tmp_path: Path, config: dict[str, Any], message: str) -> None:
    files = sentence_transformer(**config)
    with pytest.raises(Unsupported, match=message):
        read(tmp_path, files)
    assert read(tmp_path, files, is_pooled=True).pooling == ()


def with_dense(config: Any = None, **files: Any) -> dict[str, Any]:
    """Returns the files of a model with a dense layer before the normalization."""
    found = sentence_transformer()
    found["modules.json"].insert(2, {"path": "2_Dense", "type": "sentence_transformers.models.Dense"})
    dense = {
        "in_features": 2,
        "out_features": 3,
        "bias": True,
        "activation_function": "torch.nn.modules.linear.Identity",
    }
    return {**found, "2_Dense/config.json": {**dense, **(config or {})}, **files}


def weights(**tensors: Any) -> dict[str, bytes]:
    return {"2_Dense/model.safetensors": safetensors({name.replace("_", "."): each for name, each in tensors.items()})}


WEIGHT, BIAS = np.ones((3, 2), np.float32), np.zeros(3, np.float32)


def test_a_dense_layer_is_read(tmp_path: Path) -> None:
    steps = read(tmp_path, with_dense(**weights(linear_weight=WEIGHT, linear_bias=BIAS)))
    (dense,) = steps.layers
    assert isinstance(dense, Dense)
    assert (dense.weight.tolist(), dense.activation, dense.is_residual) == (WEIGHT.tolist(), "Identity", False)
    assert (steps.pooling, steps.normalize) == ((Pooling.MEAN,), True)


@pytest.mark.parametrize(
    ("config", "files", "message"),
    [
        ({}, {"2_Dense/pytorch_model.bin": b"\x80"}, "pickle"),
        ({"activation_function": "evil.Code"}, {}, "evil.Code"),
        ({"activation_function": "torch.nn.modules.activation.Mish"}, {}, "Mish"),
        ({"module_input_name": "token_embeddings"}, {}, "token_embeddings"),
    ],
)
def test_a_dense_layer_that_is_not_computed_is_refused(
    tmp_path: Path, config: dict[str, Any], files: dict[str, Any], message: str
) -> None:
    with pytest.raises(Unsupported, match=message):
        read(tmp_path, with_dense(config, **files))


@pytest.mark.parametrize(
    "files",
    [{}, weights(linear_bias=BIAS), weights(linear_weight=BIAS), weights(linear_weight=WEIGHT, linear_bias=BIAS[:2])],
)
def test_weights_that_are_missing_or_do_not_fit_are_refused(tmp_path: Path, files: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        read(tmp_path, with_dense(**files))


def test_a_file_that_pools_itself_contains_the_dense_layers(tmp_path: Path) -> None:
    steps = read(tmp_path, with_dense(), is_pooled=True)
    assert (steps.pooling, steps.layers, steps.normalize) == ((), (), True)


def test_another_step_is_refused(tmp_path: Path) -> None:
    files = sentence_transformer()
    files["modules.json"].append({"path": "3_CNN", "type": "sentence_transformers.models.CNN"})
    with pytest.raises(Unsupported, match="'CNN'"):
        read(tmp_path, files)


def test_a_folder_of_another_library_has_no_steps(tmp_path: Path) -> None:
    assert read(tmp_path, {"config.json": {}}).normalize is None


def test_a_pooling_that_joins_one_way_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="contains one way twice"):
        read(tmp_path, sentence_transformer(pooling_mode=["cls", "cls"]))


@pytest.mark.parametrize("modules", [{}, [1], [{"type": 5, "path": ""}], [{"type": "x"}]])
def test_malformed_modules_are_refused(tmp_path: Path, modules: Any) -> None:
    with pytest.raises(InvalidInput):
        read(tmp_path, {**sentence_transformer(), "modules.json": modules})
