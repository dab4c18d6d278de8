"""What the harness asks for: conversations, generation settings, likelihoods."""

import json
import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from adafuse.errors import UserError, unknown
from adafuse.options import OTHER_LENGTHS, SAMPLING
from adafuse.records.result import Chat, Likelihood, Prompt, Turn

logger = logging.getLogger(__name__)

_MARK = '{"adafuse_chat": '


def write_chat(history: Sequence[Mapping[str, Any]], *, continues: bool) -> str:
    """Return a history of {"role", "content"} as a string that `read_prompt` understands.

    With `continues`, the last turn is the beginning of the answer, not a question.
    """
    for turn in history:
        if not isinstance(turn["content"], str):
            raise UserError(
                f"a turn of {turn['role']!r} holds {type(turn['content']).__name__}, not text; use"
                " a task of text only"
            )
    chat = Chat(tuple(Turn(turn["role"], turn["content"]) for turn in history), continues)
    turns = [asdict(turn) for turn in chat.turns]
    return json.dumps({"adafuse_chat": turns, "continues": continues}, ensure_ascii=False)


def read_prompt(text: str) -> Prompt:
    """Return the chat that `write_chat` wrote; every other text is a prompt as it stands."""
    if not text.startswith(_MARK):
        return text
    row = json.loads(text)
    return Chat(tuple(Turn(**turn) for turn in row["adafuse_chat"]), row["continues"])


LENGTHS = (*OTHER_LENGTHS, "max_new_tokens")
IDLE = ("top_p", "top_k", "min_p", "typical_p", "seed", "early_stopping", "use_cache")
"""Settings whose value makes no difference to greedy decoding: the likeliest id is always kept."""


@dataclass(frozen=True, slots=True)
class GenerationLimits:
    """Where the answer to a request ends; requests with the same limits are decoded together."""

    stop: tuple[str, ...]
    max_new_tokens: int

    def cut(self, text: str) -> str:
        """Return a text up to the first stop string, as the harness's own models do.

        Decoding lets a text begin with a stop string of white space.
        """
        found = [place for stop in self.stop if (place := text.find(stop)) >= 0]
        return text[: min(found, default=len(text))]


def read_generation(
    given: Mapping[str, Any], default: int, seed: int | None = None
) -> GenerationLimits:
    """Check the generation settings of a request: `generation_kwargs`, changed by `--gen_kwargs`.

    Refused are unknown settings and all but greedy decoding. `default` is the most new tokens where
    the task says nothing, `seed` that of a method which draws samples: another one is refused.
    """
    if seed is not None and given.get("seed") not in (None, seed):
        raise UserError(
            f"generation setting seed is {given['seed']!r}, but the method draws with seed {seed};"
            f" set --model_args seed={given['seed']}"
        )
    for name, value in given.items():
        if name in ("until", *LENGTHS, *IDLE):
            continue
        if name == "temperature" and value == 1 and given.get("do_sample") is False:
            continue  # the default of a sampling that is switched off
        if name not in SAMPLING:
            names = dict.fromkeys(["until", *LENGTHS, *SAMPLING, *IDLE])
            raise UserError(unknown("generation setting", name, [*names]))
        if value is not None and value not in SAMPLING[name]:
            raise UserError(
                f"generation setting {name} is {value!r}, but fused decoding is greedy; set"
                f" --gen_kwargs {name}={SAMPLING[name][0]}, or take another task"
            )
    return GenerationLimits(_stop(given.get("until")), _length(given, default))


def _stop(until: object) -> tuple[str, ...]:
    strings = [until] if isinstance(until, str) else until or []
    if not isinstance(strings, Sequence) or not all(isinstance(text, str) for text in strings):
        raise UserError(f"generation setting until is {until!r}; give a string or a list of them")
    return tuple(text for text in strings if text)


def _length(given: Mapping[str, Any], default: int) -> int:
    lengths = {name: given[name] for name in LENGTHS if given.get(name) is not None}
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{name}={value}" for name, value in lengths.items())
        raise UserError(f"generation settings {listed} contradict each other; give one of them")
    name, length = next(iter(lengths.items()), (LENGTHS[0], default))
    if not isinstance(length, int) or isinstance(length, bool) or length < 1:
        raise UserError(f"generation setting {name} is {length!r}; give a whole number above 0")
    return length


def read_pair(context: str, continuation: str) -> tuple[Prompt, str]:
    """Return the prompt of a request and the continuation to be scored.

    Whitespace at the end of a plain context goes to the text, as everywhere in the harness: no
    model would begin its next word after a loose space.

    Raises:
        UserError: there is nothing to be scored.
    """
    prompt, after = read_prompt(context), continuation
    if isinstance(prompt, str):
        bare = prompt.rstrip()
        prompt, after = bare, prompt[len(bare) :] + continuation
    if not after:
        raise UserError(
            f"a choice after {context[-40:]!r} is empty, which is always likelier than any text;"
            " use a task whose choices all have a text"
        )
    return prompt, after


def fuse(likelihood: Likelihood, weights: Sequence[float]) -> tuple[float, bool]:
    """Return the weighted mean of log p_k, and whether all models would write the text greedily.

    Models of weight 0 do not count.
    """
    rows = zip(weights, likelihood.logprobs, likelihood.greedy, strict=True)
    counted = [row for row in rows if row[0] > 0]
    total = math.fsum(weight * logprob for weight, logprob, _ in counted)
    mean = total / math.fsum(weight for weight, _, _ in counted)
    return mean, all(greedy for _, _, greedy in counted)


_CONSEQUENCE = {
    "generate_until": "they count as wrong",
    "loglikelihood": "they count as impossible, and where all choices do, the harness takes the"
    " first one",
}


def check_failures(errors: Mapping[str, str], kind: str, requests: int, share: float) -> None:
    """Warn of failed requests (errors by name); refuse to answer if more than `share` failed."""
    if not errors:
        return
    first, error = next(iter(errors.items()))
    message = (
        f"{len(errors)} of {requests} {kind} requests failed; the first one, {first!r}, says:"
        f" {' '.join(error.split())}"
    )
    if len(errors) / requests > share:
        raise UserError(f"{message}; fix it or raise max_error_share={share:g}")
    logger.warning("%s; %s", message, _CONSEQUENCE[kind])
