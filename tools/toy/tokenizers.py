"""The toy tokenizers: four of the language models, and those of the ranker and the fuser."""

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from tokenizers.processors import ByteLevel, Sequence, TemplateProcessing
from transformers import PreTrainedTokenizerFast

from adafuse.methods.llm_blender.networks import PREFIXES, TASK
from tools.toy.world import build_world, contests

MISTRAL_CHAT = (
    "{{ bos_token }}{% for message in messages %}"
    "{% if message['role'] == 'assistant' %}{{ ' ' + message['content'] + eos_token }}"
    "{% else %}{{ '[INST] ' + message['content'] + '[/INST]' }}{% endif %}"
    "{% endfor %}"
)
LLAMA_CHAT = (
    "{{ bos_token }}{% for message in messages %}"
    "{{ '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' }}"
    "{{ message['content'] + '<|eot_id|>' }}{% endfor %}"
    "{% if add_generation_prompt %}"
    "{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"
)
_CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
QWEN3_CHAT = _CHATML
INTERNLM3_CHAT = "{{ bos_token }}" + _CHATML


BYTE_PIECES = tuple(f"<0x{byte:02X}>" for byte in range(256))
# Below any sum of piece scores, so that the literal text "<0x41>" is never read as a byte.
BYTE_SCORE = -1e4
# Pieces of the Unigram model that are found by its trainer; the rest are whole words.
FRAGMENTS = 420
GPT2_PATTERN = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@dataclass(frozen=True)
class Vocabulary:
    """What one model's tokenizer is made of; ``specials`` get the first ids, in order."""

    train: Callable[[Iterable[str], "Vocabulary"], Tokenizer]
    size: int
    specials: tuple[str, ...]
    start: str | None
    end: str
    pad: str
    chat_template: str
    unknown: str | None = None
    pattern: str = ""


def train_byte_level(texts: Iterable[str], vocabulary: Vocabulary) -> Tokenizer:
    """Byte-level BPE whose words are cut by ``vocabulary.pattern``."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(vocabulary.pattern), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary.size,
        special_tokens=list(vocabulary.specials),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def train_metaspace_bpe(texts: Iterable[str], vocabulary: Vocabulary) -> Tokenizer:
    """SentencePiece-style BPE: a space becomes U+2581, unknown characters become bytes."""
    draft = _with_metaspace(Tokenizer(models.BPE(unk_token=vocabulary.unknown)))
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary.size - len(BYTE_PIECES),
        special_tokens=list(vocabulary.specials),
        initial_alphabet=_printable_ascii(),
        show_progress=False,
    )
    draft.train_from_iterator(texts, trainer)
    learnt = json.loads(draft.to_str())["model"]
    pieces = sorted(learnt["vocab"], key=learnt["vocab"].__getitem__)
    ordered = dict.fromkeys((*vocabulary.specials, *BYTE_PIECES, *pieces))
    model = models.BPE(
        vocab={piece: i for i, piece in enumerate(ordered)},
        merges=[(left, right) for left, right in learnt["merges"]],
        unk_token=vocabulary.unknown,
        fuse_unk=True,
        byte_fallback=True,
    )
    return _with_metaspace(Tokenizer(model))


def train_unigram(texts: Iterable[str], vocabulary: Vocabulary) -> Tokenizer:
    """Unigram model in SentencePiece's style, with byte fallback."""
    texts = list(texts)
    draft = _with_metaspace(Tokenizer(models.Unigram()))
    trainer = trainers.UnigramTrainer(
        vocab_size=FRAGMENTS,
        special_tokens=list(vocabulary.specials),
        unk_token=vocabulary.unknown,
        initial_alphabet=_printable_ascii(),
        show_progress=False,
    )
    draft.train_from_iterator(texts, trainer)
    learnt = json.loads(draft.to_str())["model"]["vocab"]
    specials = [(piece, 0.0) for piece in vocabulary.specials]
    # Rare characters get scores that differ by chance in the third decimal, and so their order.
    scored = {piece: round(score, 2) for piece, score in learnt if piece not in vocabulary.specials}
    pieces = sorted(scored.items(), key=lambda item: (-item[1], item[0]))
    every = specials + [(piece, BYTE_SCORE) for piece in BYTE_PIECES] + pieces
    every += _frequent_words(draft, texts, {piece for piece, _ in every}, vocabulary.size)
    unknown = vocabulary.specials.index(str(vocabulary.unknown))
    return _with_metaspace(Tokenizer(models.Unigram(every, unknown, byte_fallback=True)))


def _frequent_words(
    draft: Tokenizer, texts: list[str], taken: set[str], size: int
) -> list[tuple[str, float]]:
    # The trainer proposes only pieces that several different words share, which in a language
    # of some hundred words leaves most words in fragments.
    counts = Counter(
        word
        for text in texts
        for word, _ in draft.pre_tokenizer.pre_tokenize_str(draft.normalizer.normalize_str(text))
    )
    total = counts.total()
    new = [(word, count) for word, count in counts.most_common() if word not in taken]
    return [(word, math.log(count / total)) for word, count in new[: size - len(taken)]]


def _printable_ascii() -> list[str]:
    return [chr(code) for code in range(33, 127)] + ["\n"]


def _with_metaspace(tokenizer: Tokenizer) -> Tokenizer:
    # Every white space and every digit is a piece of its own, and pieces never cross a space:
    # that is what lets a span be tokenized apart from the text before it.
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split("▁", "merged_with_next"),
            pre_tokenizers.Split(Regex(r"[^\p{L}\p{N}▁]"), "isolated"),
            pre_tokenizers.Digits(individual_digits=True),
        ]
    )
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    return tokenizer


VOCABULARIES = {
    "mistral": Vocabulary(
        train_metaspace_bpe,
        1200,
        ("<unk>", "<s>", "</s>", "<pad>", "[INST]", "[/INST]"),
        start="<s>",
        end="</s>",
        pad="<pad>",
        chat_template=MISTRAL_CHAT,
        unknown="<unk>",
    ),
    "llama": Vocabulary(
        train_byte_level,
        1280,
        (
            "<|begin_of_text|>",
            "<|end_of_text|>",
            "<|eot_id|>",
            "<|finetune_right_pad_id|>",
            "<|start_header_id|>",
            "<|end_header_id|>",
        ),
        start="<|begin_of_text|>",
        end="<|eot_id|>",
        pad="<|finetune_right_pad_id|>",
        chat_template=LLAMA_CHAT,
        pattern=LLAMA3_PATTERN,
    ),
    "qwen3": Vocabulary(
        train_byte_level,
        1000,
        ("<|endoftext|>", "<|im_start|>", "<|im_end|>"),
        start=None,
        end="<|im_end|>",
        pad="<|endoftext|>",
        chat_template=QWEN3_CHAT,
        pattern=GPT2_PATTERN,
    ),
    "internlm3": Vocabulary(
        train_unigram,
        1400,
        ("<unk>", "<s>", "</s>", "<pad>", "<|im_start|>", "<|im_end|>"),
        start="<s>",
        end="</s>",
        pad="<pad>",
        chat_template=INTERNLM3_CHAT,
        unknown="<unk>",
    ),
}


def build_tokenizer(name: str, texts: Iterable[str]) -> PreTrainedTokenizerFast:
    """The tokenizer of model ``name``, trained on ``texts``."""
    vocabulary = VOCABULARIES[name]
    tokenizer = vocabulary.train(texts, vocabulary)
    if vocabulary.start is not None:
        start = TemplateProcessing(
            single=f"{vocabulary.start} $A",
            pair=f"{vocabulary.start} $A {vocabulary.start} $B",
            special_tokens=[(vocabulary.start, tokenizer.token_to_id(vocabulary.start))],
        )
        tokenizer.post_processor = Sequence([ByteLevel(trim_offsets=False), start])
    named = {vocabulary.start, vocabulary.end, vocabulary.pad, vocabulary.unknown}
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=tokenizer,
        bos_token=vocabulary.start,
        eos_token=vocabulary.end,
        pad_token=vocabulary.pad,
        unk_token=vocabulary.unknown,
        additional_special_tokens=[t for t in vocabulary.specials if t not in named],
        chat_template=vocabulary.chat_template,
        clean_up_tokenization_spaces=False,
        model_max_length=8192,
        padding_side="left",
    )


TEXTS = 4000
IDS = 1100
EXTRA_IDS = tuple(f"<extra_id_{number}>" for number in range(10))
RANKER_SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "<|candidate|>")


def ranker_tokenizer() -> PreTrainedTokenizerFast:
    """Return a tokenizer that puts [CLS] and [SEP] around a text, as DeBERTa's does."""
    specials = (*RANKER_SPECIALS, *PREFIXES.values())
    return _build(
        specials,
        "[CLS] $A [SEP]",
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
    )


def fuser_tokenizer() -> PreTrainedTokenizerFast:
    """Return a tokenizer that puts </s> after a text and knows T5's sentinels."""
    specials = ("<pad>", "</s>", "<unk>", *EXTRA_IDS)
    return _build(specials, "$A </s>", pad_token="<pad>", eos_token="</s>", unk_token="<unk>")


def _build(specials: tuple[str, ...], template: str, **named: str) -> PreTrainedTokenizerFast:
    vocabulary = Vocabulary(
        train_metaspace_bpe,
        IDS,
        specials,
        start=None,
        end="",
        pad=named["pad_token"],
        chat_template="",
        unknown=named["unk_token"],
    )
    tokenizer = train_metaspace_bpe(_texts(), vocabulary)
    around = [part for part in template.split() if part != "$A"]
    tokenizer.post_processor = TemplateProcessing(
        single=template, special_tokens=[(part, tokenizer.token_to_id(part)) for part in around]
    )
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=tokenizer,
        additional_special_tokens=[t for t in specials if t not in named.values()],
        clean_up_tokenization_spaces=False,
        model_max_length=4096,
        **named,
    )


def _texts() -> Iterable[str]:
    for contest in contests(build_world(), TEXTS, "tokenizer"):
        yield from (contest.prompt, contest.right, contest.wrong[0])
        yield f" Instruction: Input: Candidate {TASK}"
