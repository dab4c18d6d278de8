"""Algorithm 1 (arXiv 2601.06022) as plainly as it can be written: no engine, no coroutines.

Every distribution is a full forward over all ids; nothing is shared with the package but the
loaded models. It is slow and only for tests.
"""

from dataclasses import dataclass, field

import torch


@dataclass
class OracleModel:
    """One member: network, tokenizer, and its ids so far."""

    network: object
    tokenizer: object
    ends: set
    ids: list = field(default_factory=list)
    known: dict = field(default_factory=dict)

    def logprobs(self, extra):
        """Log-probabilities after the ids and `extra`: float32 [vocabulary]."""
        ids = (*self.ids, *extra)
        if ids not in self.known:
            with torch.no_grad():
                logits = self.network(torch.tensor([ids])).logits[0, -1]
            self.known[ids] = torch.log_softmax(logits[: len(self.tokenizer)].float(), dim=-1)
        return self.known[ids]

    def text(self, before, new):
        """The text that `new` adds after `before`."""
        context = before[-12:]
        whole = self.tokenizer.decode(
            context + new, skip_special_tokens=False, clean_up_tokenization_spaces=False
        )
        start = self.tokenizer.decode(
            context, skip_special_tokens=False, clean_up_tokenization_spaces=False
        )
        return whole[len(start) :]

    def foreign(self, span):
        """Ids of a span that another model wrote."""
        if not span:
            return []
        anchor = "a" if span[0].isspace() else "\n"
        encode = lambda text: self.tokenizer.encode(text, add_special_tokens=False)  # noqa: E731
        return encode(anchor + span)[len(encode(anchor)) :]

    def margin(self, extra):
        """p(1) - p(2) after the ids and `extra`."""
        first, second = self.logprobs(extra).exp().topk(2).values.tolist()
        return first - second

    def word(self, extra, before, stops, cap, first=()):
        """One word after the ids `extra` and the text `before`: (ids, text, is END)."""
        z = []
        while True:
            nxt = first[len(z)] if len(z) < len(first) else int(self.logprobs(extra + z).argmax())
            if nxt in self.ends:
                return z, self.text(self.ids + extra, z), not z
            text = self.text(self.ids + extra, z)
            longer = self.text(self.ids + extra, [*z, nxt])
            complete = bool(text.strip()) and not text.endswith("\ufffd")
            if complete and longer[len(text) : len(text) + 1].isspace():
                return z, text, False
            z.append(nxt)
            if longer.endswith("\ufffd"):
                continue
            done = bool(longer.strip()) and longer[-1].isspace()
            if done or stop_in(before + longer, stops) or len(z) >= cap:
                return z, longer, False


def adafuse(
    models, prompt, *, tau, max_words, branching, stops, max_new_tokens, margin="start", cap=16
):
    """Return (text, stop reason, rounds); a round is (pool of (text, ends), NLLs, selected)."""
    for model in models:
        model.ids = list(model.tokenizer(prompt)["input_ids"])
    prompt_lengths = [len(model.ids) for model in models]
    y, rounds = "", []
    while True:
        pool = {}
        for k, model in enumerate(models):
            written = _propose(model, y, tau, max_words, branching, stops, margin, cap)
            for ids, text, ends in written:
                pool.setdefault((text, ends), {}).setdefault(k, ids)
        nlls = []
        for (text, ends), own in pool.items():
            nlls.append(
                [_nll(m, own.get(k, None) or m.foreign(text), ends) for k, m in enumerate(models)]
            )
        fused = [sum(row) / len(row) for row in nlls]
        best = fused.index(min(fused))
        (text, ends), own = list(pool.items())[best]
        rounds.append((list(pool), nlls, best))
        for k, model in enumerate(models):
            model.ids += own[k] if k in own else model.foreign(text)
        y += text
        if ends:
            return y, "eos", rounds
        if stop := stop_in(y, stops):
            return y[: stop[0]], "stop", rounds
        if any(
            len(m.ids) - n >= max_new_tokens for m, n in zip(models, prompt_lengths, strict=True)
        ):
            return y, "length", rounds


def stop_in(text, stops):
    """Where the first stop string begins and ends; one of whitespace counts only after a word."""
    found = []
    for stop in stops:
        start = 0
        while not stop.strip() and start < len(text) and text[start].isspace():
            start += 1
        if (at := text.find(stop, start)) >= 0:
            found.append((at, at + len(stop)))
    return min(found, default=None)


def _cut(y, text, stops):
    stop = stop_in(y + text, stops)
    return (y + text)[: stop[1]][len(y) :] if stop else text


def _propose(model, y, tau, max_words, branching, stops, margin, cap):
    ids, text = [], ""
    for _ in range(max_words):
        sure = []
        if margin == "word":
            more, _, _ = model.word(ids, y + text, stops, cap)
            margins = [model.margin(ids + more[:count]) for count in range(max(1, len(more)))]
            sure = more[: margins.index(min(margins))]
        top = torch.sort(model.logprobs(ids + sure), descending=True, stable=True)
        probabilities = top.values.exp()
        if probabilities[0] - probabilities[1] < tau:
            branches = []
            for first in top.indices[:branching].tolist():
                more, word, end = model.word(ids, y + text, stops, cap, [*sure, first])
                branches.append((ids + more, _cut(y, text + word, stops), end))
            return branches
        more, word, end = model.word(ids, y + text, stops, cap)
        ids, text = ids + more, text + word
        if end:
            return [(ids, text, True)]
        if stop_in(y + text, stops):
            break
    return [(ids, _cut(y, text, stops), False)]


def _nll(model, ids, ends):
    total, count = 0.0, len(ids)
    for position, token in enumerate(ids):
        total += float(model.logprobs(ids[:position])[token])
    if ends:
        total += float(torch.logsumexp(model.logprobs(ids)[sorted(model.ends)], dim=0))
        count += 1
    return -total / count
