"""How likely the ensemble finds a continuation: the product of its members, as in eq. 5."""

import math
from collections.abc import Sequence

from adafuse.harness.chats import read_prompt
from adafuse.prompt import Prompt
from adafuse.records import Likelihood


def read_pair(context: str, continuation: str) -> tuple[Prompt, str]:
    """Return the prompt of a request and the text whose likelihood is asked.

    Whitespace at the end of a plain context goes to the text, as everywhere in the harness: no
    model would begin its next word behind a loose space.
    """
    prompt = read_prompt(context)
    if not isinstance(prompt, str):
        return prompt, continuation
    bare = prompt.rstrip()
    return bare, prompt[len(bare) :] + continuation


def fuse(found: Likelihood, weights: Sequence[float]) -> tuple[float, bool]:
    """Return the weighted mean of log p_k, and whether all models would write the text greedily.

    Models of weight 0 have no say.
    """
    rows = zip(weights, found.logprobs, found.greedy, strict=True)
    heard = [(weight, logprob, greedy) for weight, logprob, greedy in rows if weight > 0]
    total = math.fsum(weight * logprob for weight, logprob, _ in heard)
    mean = total / math.fsum(weight for weight, _, _ in heard)
    return mean, all(greedy for _, _, greedy in heard)
