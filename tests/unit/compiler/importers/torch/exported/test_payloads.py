"""The weights and constants of an exported program."""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping
from typing import Any

import pytest

from service.core.errors import OctetError, Unsupported
from tests.support.exported import document, meta
from tests.support.exported_programs import STEPS, refused
from tests.support.torchscript import archive
from tests.unit.compiler.importers.torch.test_unpickler import CALLS

WEIGHTS = {"parameter": {"arg": {"name": "w"}, "parameter_name": "weight"}}


def test_a_constant_that_repeats_one_element_is_not_called_damaged() -> None:
    repeated = meta("float32", 1 << 12, 1 << 12) | {"strides": [{"as_int": 0}, {"as_int": 0}]}
    error = with_weights({"tensor_meta": repeated}, {"data/weights/weight_0": bytes(4)})
    assert isinstance(error, Unsupported)
    assert error.tensor == "weight"
    assert "[4096, 4096] repeats the 1 elements" in str(error)


def with_weights(entry: dict[str, Any], records: Mapping[str, bytes | str]) -> OctetError:
    whole = document(STEPS)
    whole["graph_module"]["signature"]["input_specs"].append(WEIGHTS)
    given = {"path_name": "weight_0", "is_param": True, "use_pickle": False, "tensor_meta": meta("int8", 2, 3)}
    config = json.dumps({"config": {"weight": given | entry}})
    return refused(whole, {"data/weights/model_weights_config.json": config, **records})


@pytest.mark.parametrize("name", CALLS)
def test_a_pickle_among_the_weights_is_not_read(name: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    evil = {
        "data/weights/weight_0": pickle.dumps(CALLS[name]),
        "data/sample_inputs/model.pt": pickle.dumps(CALLS[name]),
    }
    assert "a pickle outside of an archive" in str(with_weights({"use_pickle": True}, evil))
    within = evil | {"data/weights/weight_0": archive({"data.pkl": pickle.dumps(CALLS[name], protocol=2)})}
    assert "pickle" in str(with_weights({"use_pickle": True}, within))
    assert not list(tmp_path.iterdir())


def test_weights_must_lie_within_their_record() -> None:
    fits = {"data/weights/weight_0": bytes(6)}
    assert "does not contain the record" in str(with_weights({}, {}))
    assert "does not contain the record" in str(with_weights({"path_name": "../../etc/passwd"}, fits))
    assert "extends beyond" in str(with_weights({}, {"data/weights/weight_0": bytes(5)}))
    assert "not a list of sizes" in str(with_weights({"tensor_meta": meta("int8", 1 << 40)}, fits))
    repeated = meta("int8", 1 << 30) | {"strides": [{"as_int": 0}]}
    assert "repeats the 6 elements" in str(with_weights({"tensor_meta": repeated}, fits))
    assert "a layout that is not strided" in str(
        with_weights({"tensor_meta": meta("int8", 2, 3) | {"layout": 1}}, fits)
    )
    assert "incomplete element" in str(with_weights({"tensor_meta": meta("float32", 1)}, fits))
