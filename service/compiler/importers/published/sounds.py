"""Reads how sounds become waveforms: `preprocessor_config.json` of models of sounds, as transformers writes it."""

from __future__ import annotations

from service.compiler.importers.published.files import Folder
from service.compiler.importers.published.pictures import PREPROCESSOR
from service.core.errors import Unsupported
from service.core.models.metadata import ModelMetadata


def read_sounds(folder: Folder) -> ModelMetadata:
    """Returns the preprocessing of sounds that the folder defines; empty if it defines none. Models whose extractor
    computes a spectrogram take tensors only, so their waveforms have no use for `do_normalize`.

    Raises:
        InvalidInput: the file is not a JSON object.
        Unsupported: the sampling rate is not a whole number.
    """
    config = folder.json(PREPROCESSOR)
    rate = config.get("sampling_rate")
    if rate is None:
        return ModelMetadata()
    if not isinstance(rate, int | float) or isinstance(rate, bool) or rate != int(rate):
        raise Unsupported(f"sampling_rate in {PREPROCESSOR} is {rate!r}", hint="--sampling-rate replaces it")
    is_of_waveforms = "Wav2Vec2" in str(config.get("feature_extractor_type", ""))
    standardize = bool(config.get("do_normalize", True)) if is_of_waveforms else None
    return ModelMetadata(sampling_rate=int(rate), standardize=standardize or None)
