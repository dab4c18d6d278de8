import math
from dataclasses import replace

import pytest
from tokenizers import Tokenizer, decoders, models
from transformers import PreTrainedTokenizerFast

from adafuse.ensemble import Ensemble
from adafuse.errors import UserError
from adafuse.methods import resolve
from adafuse.models.language_model import LoadedModel
from tests.conftest import toy_path
from tests.methods.test_engines_agree import PROMPTS
from tests.support.next_token import logprobs
from tests.support.scripted import ScriptedModel
from tests.support.scripted import decode as scripted
from tests.support.tiny import random_llama


def decode(ensemble, **options):
    return ensemble.generate(PROMPTS, method="unite", max_new_tokens=16, **options)


def best_logprob(model, vector, surfaces):
    """The log-probability of the likeliest id that stands for one of these; None without one."""
    own = [index for index, surface in enumerate(model.token_bytes.of) if surface in surfaces]
    return max((float(vector[index]) for index in own), default=None)


def test_defaults():
    assert resolve("unite", {}).options.model_dump() == {
        "top_k": 10,
        "primary": 0,
        "duplicates": "exclude",
        "normalise": "union",
        "positions": "all",
        "mean": "arithmetic",
        "weighting": "given",
        "commit": "surface",
    }


def test_entries_are_the_top_k_of_all_models_with_the_probabilities_of_both(random_pair):
    results = decode(random_pair, top_k=2, normalise="vocabulary", duplicates="keep")
    for prompt, result in zip(PROMPTS, results, strict=True):
        taken = result.rounds[0]
        vectors = [logprobs(model, prompt) for model in random_pair.models]
        tops = [
            {model.token_bytes.of[index] for index in vector.topk(2).indices.tolist()}
            for model, vector in zip(random_pair.models, vectors, strict=True)
        ]
        for candidate in taken.candidates:
            surface = candidate.text.encode()
            if candidate.ends or "\ufffd" in candidate.text:
                continue
            assert candidate.proposers == tuple(k for k, top in enumerate(tops) if surface in top)
            for number, model in enumerate(random_pair.models):
                own = best_logprob(model, vectors[number], {surface})
                if own is None:
                    own = float(vectors[number][model.encode_span(candidate.text)[0]])
                assert candidate.nll[number] == pytest.approx(-own, abs=1e-4)
        fused = [candidate.fused for candidate in taken.candidates]
        assert fused == sorted(fused)
        assert taken.margins[0][0] >= 0


def test_probabilities_over_the_union_add_up_to_1(pair):
    for result in decode(pair, top_k=2):  # at most four entries: all of them are in the trace
        for taken in result.rounds:
            for number in (0, 1):
                p = [math.exp(-candidate.nll[number]) for candidate in taken.candidates]
                assert math.fsum(p) == pytest.approx(1)


def test_only_the_primarys_own_tokens_are_written_on_demand(random_pair):
    for primary in (0, 1):
        own = {surface for surface in random_pair.models[primary].token_bytes.of if surface}
        whole = decode(random_pair, primary=primary)
        first = decode(random_pair, primary=primary, commit="first_token")

        def winners(results):
            chosen = [taken.candidates[0] for result in results for taken in result.rounds]
            return {c.text.encode() for c in chosen if c.text and "\ufffd" not in c.text}

        assert winners(first) <= own
        assert not winners(whole) <= own


def test_the_trace_holds_what_was_written(random_pair):
    for commit in ("surface", "first_token"):
        for result in decode(random_pair, commit=commit):
            pieces = [taken.candidates[0].text for taken in result.rounds]
            if "\ufffd" not in "".join(pieces):
                assert result.text == "".join(pieces)


@pytest.mark.parametrize("chat", [(True, True), (False, True)])
def test_behind_a_chat_template_words_meet_with_and_without_their_space(chat):
    paths = [toy_path("mistral"), toy_path("llama")]
    ensemble = Ensemble.from_pretrained(paths, device="cpu", chat=chat)
    results = decode(ensemble, normalise="vocabulary", duplicates="keep")
    for prompt, result in zip(PROMPTS, results, strict=True):
        vectors = [logprobs(model, prompt) for model in ensemble.models]
        chosen, *others = result.rounds[0].candidates
        # What is written is a token of some model as it is; the others are shown as they met.
        met = chosen.text[1:] if chosen.text.strip() and chosen.text[0] == " " else chosen.text
        for candidate in (replace(chosen, text=met), *others):
            text = candidate.text
            assert not text.startswith(" ") or text.startswith("  ") or not text.strip()
            if text.isalpha():
                for number, model in enumerate(ensemble.models):
                    spellings = {text.encode(), b" " + text.encode()}
                    own = best_logprob(model, vectors[number], spellings)
                    if own is not None:
                        assert candidate.nll[number] == pytest.approx(-own, abs=1e-4)
        assert result.text.startswith(result.rounds[0].candidates[0].text)
    later = [c.text for result in results for taken in result.rounds[1:] for c in taken.candidates]
    assert any(len(text) > 1 and text.startswith(" ") for text in later)


@pytest.mark.parametrize("method", ["unite", "gac"])
def test_a_tokenizer_without_bytes_is_refused_before_decoding(pair, method):
    words = {"[UNK]": 0, "[SEP]": 1, "play": 2, "##ing": 3}
    backend = Tokenizer(models.WordPiece(words, unk_token="[UNK]"))
    backend.decoder = decoders.WordPiece()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="[SEP]")
    network = random_llama(len(words), seed=0)
    ends = frozenset({1})
    pieces = LoadedModel(
        name="pieces", network=network, tokenizer=tokenizer, end_ids=ends, context=64
    )
    ensemble = Ensemble((pair.models[0], pieces), (1.0, 1.0))
    with pytest.raises(
        UserError, match=r"tokenizer of 'pieces' .* such as '##ing'; use a byte-lev"
    ):
        next(ensemble.stream(PROMPTS, method=method))


DIGITS = ScriptedModel(
    "digits",
    ["1", "5", " ", "END"],
    lambda ids: {(): (0.9, 0.05, 0.03, 0.02), (0,): (0.02, 0.9, 0.06, 0.02)}.get(
        ids, (0.01, 0.01, 0.01, 0.97)
    ),
)
NUMBERS = ScriptedModel(
    "numbers",
    ["15", "1", "5", " ", "END"],
    lambda ids: {(): (0.8, 0.1, 0.04, 0.04, 0.02), (1,): (0.01, 0.01, 0.01, 0.96, 0.01)}.get(
        ids, (0.01, 0.01, 0.01, 0.01, 0.96)
    ),
)


@pytest.mark.parametrize("method", ["unite", "gac"])
@pytest.mark.parametrize("models", [(DIGITS, NUMBERS), (NUMBERS, DIGITS)])
def test_a_model_has_no_say_inside_a_token_of_its_own_if_positions_are_stable(method, models):
    """After the "1" of the other model, `numbers`, which writes "15" at once, has no idea."""
    assert scripted(method, models).text == "1 "
    example = scripted(method, models, positions="stable")
    assert example.text == "15"
    nll = example.rounds[1].candidates[0].nll
    assert [math.isnan(value) for value in nll] == [model is NUMBERS for model in models]
