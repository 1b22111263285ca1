"""Networks of public packages with seeded random weights, for the zoo: networks that are commonly quantized, mostly
small.

A network's name consists of the package and the name in the package: `timm:mobilenetv3_small_050`. A suffix such as
`@224` gives the side of its images, or the number of tokens, if they differ from `SIDE` and `TOKENS`. The package
`heads` stands for torchvision's networks with the heads of `heads.py`.
Runs in the environment `zoo`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch  # type: ignore[import-not-found]

from benchmarks.models.make_torch import torchvision_models
from benchmarks.models.zoo.heads import HEADS

SIDE, TOKENS, WORDS, MANY_WORDS = 96, 16, 100, 8192  # the time does not depend on the number of words
_SMALL = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}

_BERT_MINI = {"hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 1024}
_MINILM = {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536}

# The configuration and model classes of transformers, the configuration's arguments, and the type of input.
TRANSFORMERS: dict[str, tuple[str, str, dict[str, Any], str]] = {
    "albert": ("AlbertConfig", "AlbertModel", {**_SMALL, "embedding_size": 32, "vocab_size": WORDS}, "text"),
    "bert_mini": ("BertConfig", "BertModel", {**_BERT_MINI, "vocab_size": MANY_WORDS}, "text"),
    "distilbert_base": ("DistilBertConfig", "DistilBertModel", {"vocab_size": MANY_WORDS}, "text"),
    "gpt2_two_layers": ("GPT2Config", "GPT2LMHeadModel", {"n_layer": 2, "vocab_size": MANY_WORDS}, "causal"),
    "minilm_6": ("BertConfig", "BertModel", {**_MINILM, "vocab_size": MANY_WORDS}, "text"),
    "whisper_tiny_encoder": (
        "WhisperConfig",
        "WhisperEncoder",
        {"d_model": 384, "encoder_layers": 4, "encoder_attention_heads": 6, "encoder_ffn_dim": 1536},
        "speech",
    ),
    "beit": ("BeitConfig", "BeitModel", {**_SMALL, "image_size": SIDE}, "image"),
    "bert": ("BertConfig", "BertModel", {**_SMALL, "vocab_size": WORDS}, "text"),
    "clip_text": ("CLIPTextConfig", "CLIPTextModel", {**_SMALL, "vocab_size": WORDS, "eos_token_id": 2}, "text"),
    "clip_vision": ("CLIPVisionConfig", "CLIPVisionModel", {**_SMALL, "image_size": SIDE}, "image"),
    "deberta_v2": ("DebertaV2Config", "DebertaV2Model", {**_SMALL, "vocab_size": WORDS}, "text"),
    "dinov2": ("Dinov2Config", "Dinov2Model", {**_SMALL, "image_size": SIDE}, "image"),
    "distilbert": (
        "DistilBertConfig",
        "DistilBertModel",
        {"dim": 64, "n_layers": 2, "n_heads": 4, "hidden_dim": 128, "vocab_size": WORDS},
        "text",
    ),
    "electra": ("ElectraConfig", "ElectraModel", {**_SMALL, "embedding_size": 32, "vocab_size": WORDS}, "text"),
    "gpt2": ("GPT2Config", "GPT2LMHeadModel", {"n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": WORDS}, "causal"),
    "llama": ("LlamaConfig", "LlamaForCausalLM", {**_SMALL, "vocab_size": WORDS}, "causal"),
    "minilm": ("BertConfig", "BertModel", {**_SMALL, "num_hidden_layers": 6, "vocab_size": WORDS}, "text"),
    "mobilebert": ("MobileBertConfig", "MobileBertModel", {"num_hidden_layers": 2, "vocab_size": WORDS}, "text"),
    "modernbert": ("ModernBertConfig", "ModernBertModel", {**_SMALL, "vocab_size": WORDS, "pad_token_id": 0}, "text"),
    "mpnet": ("MPNetConfig", "MPNetModel", {**_SMALL, "vocab_size": WORDS}, "text"),
    "qwen2": ("Qwen2Config", "Qwen2ForCausalLM", {**_SMALL, "num_key_value_heads": 2, "vocab_size": WORDS}, "causal"),
    "roberta": ("RobertaConfig", "RobertaModel", {**_SMALL, "vocab_size": WORDS}, "text"),
    "segformer": ("SegformerConfig", "SegformerForSemanticSegmentation", {"depths": [1, 1, 1, 1]}, "image"),
    "swin": (
        "SwinConfig",
        "SwinModel",
        {"image_size": 64, "patch_size": 4, "embed_dim": 32, "depths": [2, 2], "num_heads": [2, 4], "window_size": 4},
        "small image",
    ),
    "t5_encoder": (
        "T5Config",
        "T5EncoderModel",
        {"d_model": 64, "d_ff": 128, "num_layers": 2, "num_heads": 4, "d_kv": 16, "vocab_size": WORDS},
        "text",
    ),
    "vit": ("ViTConfig", "ViTModel", {**_SMALL, "image_size": SIDE}, "image"),
    "wav2vec2": (
        "Wav2Vec2Config",
        "Wav2Vec2Model",
        {**_SMALL, "conv_dim": [32] * 7, "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 4},
        "sound",
    ),
    "whisper_encoder": (
        "WhisperConfig",
        "WhisperEncoder",
        {"d_model": 64, "encoder_layers": 2, "encoder_attention_heads": 4, "encoder_ffn_dim": 128, "num_mel_bins": 16}
        | {"max_source_positions": 50},
        "spectrum",
    ),
    "yolos": ("YolosConfig", "YolosModel", {**_SMALL, "image_size": [SIDE, SIDE], "num_detection_tokens": 10}, "image"),
}
_SHAPES = {
    "image": (1, 3, SIDE, SIDE),
    "small image": (1, 3, 64, 64),
    "sound": (1, 4000),
    "spectrum": (1, 16, 100),
}


class _First(torch.nn.Module):  # type: ignore[misc]
    """A network with positional inputs and one output, the first tensor of the wrapped network's result."""

    def __init__(self, network: Any, names: tuple[str, ...] = ()) -> None:
        super().__init__()
        self.network, self._names = network, names

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        given = self.network(**dict(zip(self._names, inputs, strict=True))) if self._names else self.network(*inputs)
        if isinstance(given, dict):  # torchvision's segmentation networks
            return next(iter(given.values()))
        while not isinstance(given, torch.Tensor):
            given = given[0]
        return given


def network(name: str) -> tuple[Any, list[list[torch.Tensor]]]:
    """Returns a network in evaluation mode, and samples of its inputs.

    Raises:
        ValueError: no package has a network of that name.
    """
    torch.manual_seed(0)
    name, _, size = name.partition("@")
    package, _, own = name.partition(":")
    side = int(size or SIDE)
    models = torchvision_models()  # before timm, which imports torchvision
    if package == "transformers":
        return _transformer(own, int(size or TOKENS))
    if package == "timm":
        import timm  # type: ignore[import-not-found]

        made = timm.create_model(own, pretrained=False, **({} if _is_free(own) else {"img_size": side}))
    elif package == "torchvision":
        extra = {"weights_backbone": None} if "segmentation" in own else {}
        made = getattr(models.segmentation if extra else models, own.split(".")[-1])(weights=None, **extra)
    elif package == "heads":
        made = HEADS[own](models)
    elif package == "ultralytics":
        from ultralytics import YOLO  # type: ignore[import-not-found]

        made = YOLO(f"{own}.yaml").model.fuse()
        made.model[-1].export, made.model[-1].format = True, "onnx"
    else:
        raise ValueError(f"no package has {name}")
    samples = _random((1, 3, side, side))
    return _with_statistics(_varied(_First(made)), samples), [[each] for each in samples]


def _is_free(name: str) -> bool:
    """Returns true if a network of timm accepts images of any size."""
    return not any(part in name for part in ("vit_", "deit", "mixer", "swin", "beit", "cait", "xcit", "eva"))


def _transformer(name: str, size: int) -> tuple[Any, list[list[torch.Tensor]]]:
    import transformers  # type: ignore[import-not-found]

    config, kind, options, inputs = TRANSFORMERS[name]
    source = transformers
    if not hasattr(transformers, kind):
        source = __import__("transformers.models.whisper.modeling_whisper", fromlist=[kind])
    made = getattr(source, kind)(getattr(transformers, config)(**options))
    if hasattr(made.config, "use_cache"):
        made.config.use_cache = False
    made.config.return_dict = inputs == "causal" or name == "swin"
    if inputs in ("text", "causal"):
        generator = torch.Generator().manual_seed(1)
        mask = torch.ones(1, size, dtype=torch.int64)
        samples = [[torch.randint(3, options["vocab_size"], (1, size), generator=generator), mask] for _ in range(8)]
        return _varied(_First(made, ("input_ids", "attention_mask"))).eval(), samples
    shape = (1, made.config.num_mel_bins, size) if inputs == "speech" else _SHAPES[inputs]
    return _varied(_First(made)).eval(), [[each] for each in _random(shape)]


def _varied(model: Any) -> Any:
    """Sets biases other than zero and scales other than one, because exporters would share one constant for all of
    them.
    """
    torch.manual_seed(3)
    for parameter in model.parameters():
        if parameter.ndim <= 1 and bool((parameter == parameter.flatten()[:1]).all()):
            parameter.data += torch.empty_like(parameter).uniform_(-0.05, 0.05)
    return model


def _random(shape: tuple[int, ...]) -> list[torch.Tensor]:
    rng = np.random.default_rng(2)
    return [torch.from_numpy(rng.normal(size=shape).astype(np.float32)) for _ in range(8)]


def _with_statistics(model: Any, samples: list[torch.Tensor]) -> Any:
    """Sets the batch normalizations' statistics to those of the samples. With other statistics, activations of random
    networks vanish."""
    norms = [each for each in model.modules() if isinstance(each, torch.nn.modules.batchnorm._BatchNorm)]
    for each in norms:
        each.momentum = None
        each.train()
    with torch.no_grad():
        model.eval()
        for norm in norms:
            norm.train()
        for sample in (torch.cat([sample, sample.flip(2)]) for sample in samples[:4]):
            model(sample)
    return model.eval()
