"""Tokenizers of the toy ranker and fuser: one kind of BPE with the special tokens of each."""

from collections.abc import Iterable

from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerFast

from adafuse.methods.llm_blender.gen_fuser import TASK
from adafuse.methods.llm_blender.pair_ranker import PREFIXES
from adafuse.toy.contests import contests
from adafuse.toy.toy_tokenizers import Vocabulary, train_metaspace_bpe
from adafuse.toy.world import build_world

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
    """Return a tokenizer that puts </s> behind a text and knows T5's sentinels."""
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
