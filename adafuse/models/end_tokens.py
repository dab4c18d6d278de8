"""Which ids end a text (adafuse.md, "State": EOS_k)."""

from transformers import GenerationConfig, PreTrainedTokenizerBase

from adafuse.errors import UserError


def end_ids(
    generation: GenerationConfig | None, tokenizer: PreTrainedTokenizerBase, name: str
) -> set[int]:
    """Return EOS_k: the end ids that the generation config and the tokenizer name together."""
    found = _as_ids(getattr(generation, "eos_token_id", None)) | _as_ids(tokenizer.eos_token_id)
    found = {index for index in found if index < len(tokenizer)}
    if not found:
        raise UserError(
            f"model {name!r} names no end token; set eos_token_id in its generation_config.json"
            " or eos_token in its tokenizer_config.json"
        )
    return found


def special_ids(tokenizer: PreTrainedTokenizerBase) -> set[int]:
    """Return the ids of all special tokens, reserved ones included."""
    added = tokenizer.added_tokens_decoder
    reserved = {index for index, token in added.items() if token.special}
    return reserved | set(tokenizer.all_special_ids)


def _as_ids(value: int | list[int] | None) -> set[int]:
    if value is None:
        return set()
    return {value} if isinstance(value, int) else set(value)
