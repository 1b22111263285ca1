"""Small tokenizers for tests, of the types that encoders use."""

from __future__ import annotations

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

WORDS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "the", "quick", "brown", "fox", "jump", "##s", "##ed", "over", "é")


def wordpiece() -> Tokenizer:
    """Returns a tokenizer as BERT has it: `[CLS]` and `[SEP]` around lower-case words and their pieces."""
    vocabulary = {word: index for index, word in enumerate(WORDS)}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(strip_accents=False)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return tokenizer


def byte_level() -> Tokenizer:
    """Returns a tokenizer as RoBERTa and GPT-2 have it: byte-level BPE, here without merges."""
    vocabulary = {character: index for index, character in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE(vocabulary, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def unigram() -> Tokenizer:
    """Returns a tokenizer as XLM-RoBERTa has it, without its character map."""
    pieces = [("<unk>", 0.0), ("▁", -2.0), ("▁the", -3.0), ("▁fox", -3.5), *((each, -5.0) for each in "thefoxjumps")]
    tokenizer = Tokenizer(models.Unigram(list(dict(reversed(pieces)).items())[::-1], unk_id=0))
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    return tokenizer
