"""What a GGUF file says in its header: its kind, ends of texts, and what transformers ignores."""

import logging
import math
import re
import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, BinaryIO

from adafuse.errors import UserError
from adafuse.models.files import MERGE, local_path
from adafuse.models.spec import GGUF, ModelEntry

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel

logger = logging.getLogger(__name__)

_FORMATS = ("B", "b", "H", "h", "I", "i", "f", "?", "", "", "Q", "q", "d")  # by the type's number
_STRING, _ARRAY = 8, 9
_LONGEST = 1 << 24  # of a string; more is a damaged file
_TENSOR = b"tensor"
_TORN: tuple[bytes, list[Any]] = (b"", [])
# What tokenizer.ggml.pre may say. transformers splits text as GPT-2 does, or as it says; of the
# names in the second line, digits are split as well, which their vocabularies bring about.
_LIKE_GPT2 = {
    *(b"", b"default", b"gpt-2", b"gpt2", b"phi-2", b"olmo", b"mpt", b"jais"),
    *(b"smollm", b"starcoder", b"refact", b"command-r", b"codeshell"),
}
# llama.cpp begins prompts with a start token, unless the header says otherwise, and takes words of
# the vocabulary whole.
_LIKE_LLAMA3 = {
    *(b"llama3", b"llama-v3", b"llama-bpe", b"falcon3", b"falcon-h1", b"pixtral", b"midm-2.0"),
    *(b"lfm2", b"jina-v5-nano", b"tekken"),
}
_SPLITS = {
    *(b"dbrx", b"smaug-bpe", b"qwen2", b"deepseek-r1-qwen", b"kormo", b"f2llmv2", b"megrez"),
    *(b"qwen35", b"gpt-4o", b"llama4", b"kanana2", b"talkie", b"minimax-m2"),
}
_OF_EXPERTS_OR_ROTARY = re.compile(r"exp|rope|rot_embd")
_INSTEAD = "name the folder of the model, or let a server of llama.cpp run the file"
_END_KEY = re.compile(rb"^tokenizer\.ggml\.(eos|eot|eom)_token_ids?$")


def gguf_ends(path: str, revision: str | None) -> list[int]:
    """Return the ids that a GGUF file names as ends of a text, a turn or a message.

    The package gguf needs seconds for a vocabulary, and transformers reads one of these keys only.
    """
    pairs = list(_pairs(path, revision))
    whole = pairs[-1:] != [_TORN]
    return [i for key, value in pairs if whole and _END_KEY.search(key) for i in value]


def check_gguf(path: str, revision: str | None) -> None:
    """Refuse a GGUF file on this machine that is a LoRA, or a part of a model."""
    pairs = list(_pairs(path, revision))
    if pairs[-1:] == [_TORN]:
        raise UserError(f"model {path!r} is cut off, or no GGUF file; download it again")
    said = dict(pairs)
    kind = b"".join(said.get(b"general.type") or [b"model"]).decode(errors="replace")
    if kind == "adapter" or b"adapter.type" in said:
        raise UserError(f"model {path!r} is a LoRA or other adapter, not a model; {MERGE}")
    if kind != "model":
        raise UserError(
            f"model {path!r} is {kind!r}, not a model; name the file of the language model"
        )


def check_nothing_dropped(spec: ModelEntry, config: "PreTrainedConfig") -> None:
    """Refuse a GGUF file of whose attention its config does not have all.

    transformers reads some keys of few architectures, and passes over the others.
    """
    pairs = list(_pairs(spec.path, spec.revision))
    if not pairs:  # it is no GGUF file
        return
    said, text = dict(pairs), config.get_text_config()
    rope = getattr(text, "rope_parameters", None) or {}
    kinds = [each for each in rope.values() if isinstance(each, dict)] or [rope]
    architecture = b"".join(said.get(b"general.architecture", []))

    def header(name: bytes) -> Any:
        return next(iter(said.get(architecture + b"." + name, [])), None)

    factor = header(b"rope.scaling.factor") or header(b"rope.scale_linear")
    kind = header(b"rope.scaling.type")
    named = factor not in (None, 0, 1) if kind is None else kind != b"none" and factor != 1
    tables = any(key == _TENSOR and value[0].startswith(b"rope_f") for key, value in pairs)
    if (named or tables) and all(each.get("rope_type", "default") == "default" for each in kinds):
        raise _unread(spec, "a scaling of rotary positions")
    base = header(b"rope.freq_base")
    thetas = [each["rope_theta"] for each in kinds if "rope_theta" in each]
    if base and thetas and not any(math.isclose(base, theta, rel_tol=1e-6) for theta in thetas):
        raise _unread(spec, f"rope.freq_base {base:g}")
    for name in ("attn_logit_softcapping", "final_logit_softcapping"):
        cap = header(name.encode())
        if cap and not math.isclose(cap, getattr(text, name, None) or 0, rel_tol=1e-6):
            raise _unread(spec, f"{name} {cap:g}")
    heads = getattr(text, "num_attention_heads", None)
    head = getattr(text, "head_dim", None) or (text.hidden_size // heads if heads else None)
    turned, share = header(b"rope.dimension_count"), rope.get("partial_rotary_factor")
    if turned and share and head and turned != int(head * share):
        raise _unread(spec, f"rope.dimension_count {turned}")
    window, context = header(b"attention.sliding_window"), header(b"context_length")
    if (
        window
        and window < (context or math.inf)
        and window != getattr(text, "sliding_window", None)
    ):
        raise _unread(spec, f"attention.sliding_window {window}")
    if getattr(text, "query_pre_attn_scalar", head) != head:  # of Gemma 2 27B, in no key
        raise _unread(spec, "a scale of attention")
    if architecture == b"llama" and header(b"attention.head_count_kv") is None:
        raise UserError(
            f"model {spec.path!r} has no attention.head_count_kv, without which transformers puts"
            f" the weights of a GGUF file in another order; {_INSTEAD}"
        )


def check_weights_read(spec: ModelEntry, network: "PreTrainedModel") -> None:
    """Refuse a GGUF file with weights that its network does not have; transformers skips these."""
    from transformers.modeling_gguf_pytorch_utils import TensorProcessor, get_gguf_hf_weights_map

    names = [value[0] for key, value in _pairs(spec.path, spec.revision) if key == _TENSOR]
    processor = TensorProcessor()  # type: ignore[no-untyped-call]
    known = get_gguf_hf_weights_map(network, processor) if names else {}
    for name in (each.decode(errors="replace") for each in names):
        if name not in known and not _OF_EXPERTS_OR_ROTARY.search(name):
            raise _unread(spec, f"weights {name}")


def tokenizer_settings(spec: ModelEntry) -> tuple[dict[str, Any], bool]:
    """Return what to load the tokenizer of a GGUF file with, as llama.cpp reads its header.

    Second is whether it takes words of its vocabulary whole, whatever the merges make of them. A
    warning names a way to split text into words that transformers does not know.
    """
    said = dict(_pairs(spec.path, spec.revision))
    kind, pre = (b"".join(said.get(b"tokenizer.ggml." + k, [])) for k in (b"model", b"pre"))
    bare = kind == b"llama" and said.get(b"tokenizer.ggml.add_space_prefix") == [False]
    if bare and not b"".join(said.get(b"general.architecture", [])).startswith(b"gemma"):
        raise UserError(
            f"model {spec.path!r} puts no space before a text (add_space_prefix), which"
            " transformers does not read from a GGUF file; name the folder of the model"
        )
    if kind != b"gpt2":
        return {}, False
    if pre not in (_LIKE_GPT2 | _LIKE_LLAMA3 | _SPLITS):
        logger.warning(
            "%s splits text as %r, which transformers does not know and splits as GPT-2 does; name"
            " the folder of the model if its tokens differ",
            spec.path,
            pre.decode(errors="replace"),
        )
    whole, flagged = pre in _LIKE_LLAMA3, b"tokenizer.ggml.add_bos_token" in said
    return {"add_bos_token": True} if whole and not flagged else {}, whole


def _unread(spec: ModelEntry, what: str) -> UserError:
    return UserError(
        f"model {spec.path!r} has {what}, which transformers does not read from a GGUF file;"
        f" {_INSTEAD}"
    )


def _pairs(path: str, revision: str | None) -> Iterator[tuple[bytes, list[Any]]]:
    """Yield keys and values of a GGUF file, and names of tensors; `_TORN` at last if it is torn."""
    file = local_path(path, revision) if path.endswith(GGUF) else None
    if file is None:
        return
    with file.open("rb") as content:
        try:
            _, _, tensors, count = _unpack(content, "4sIQQ")
            for _ in range(count):
                yield _string(content), _value(content)
            for _ in range(tensors):
                yield _TENSOR, [_string(content)]
                _unpack(content, f"{_unpack(content, 'I')[0]}QIQ")
        except (struct.error, IndexError):
            yield _TORN


def _value(content: BinaryIO) -> list[Any]:
    """Read a value of a GGUF header; strings of lists are skipped."""
    (kind,), count = _unpack(content, "I"), 1
    if kind == _ARRAY:
        kind, count = _unpack(content, "IQ")
    if kind == _STRING:
        strings = [_string(content) for _ in range(count)]
        return strings if count == 1 else []
    return list(_unpack(content, f"{count}{_FORMATS[kind]}"))


def _string(content: BinaryIO) -> bytes:
    return content.read(min(_LONGEST, *_unpack(content, "Q")))


def _unpack(content: BinaryIO, form: str) -> tuple[Any, ...]:
    return struct.unpack(f"<{form}", content.read(struct.calcsize(f"<{form}")))
