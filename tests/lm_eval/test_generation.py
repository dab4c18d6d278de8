import pytest

from adafuse.errors import UserError
from adafuse.lm_eval.requests import LENGTHS, GenerationLimits, read_generation


def test_an_answer_ends_at_the_first_stop_string_even_one_that_it_begins_with():
    limits = read_generation({"until": ["\n", "Q:"]}, 256)
    cut = {"\n\nParis": "", "Paris\nQ:": "Paris", "A Q: b\n": "A ", "Paris": "Paris", "": ""}
    assert {text: limits.cut(text) for text in cut} == cut


@pytest.mark.parametrize(
    ("until", "stop"),
    [("\n", ("\n",)), (["\n\n", "Q:"], ("\n\n", "Q:")), ([], ()), (None, ()), (["", "."], (".",))],
)
def test_until_is_a_string_or_a_list(until, stop):
    assert read_generation({"until": until}, 256) == GenerationLimits(stop, 256)


@pytest.mark.parametrize("name", LENGTHS)
def test_the_length_has_the_names_that_the_harness_knows(name):
    assert read_generation({name: 7}, 256).max_new_tokens == 7
    assert read_generation({name: 7, "max_gen_toks": 7}, 256).max_new_tokens == 7


def test_the_default_temperature_of_sampling_that_is_switched_off_is_taken():
    assert read_generation({"do_sample": False, "temperature": 1.0}, 9) == GenerationLimits((), 9)


def test_settings_that_mean_greedy_decoding_are_taken():
    greedy = {"do_sample": False, "temperature": 0.0, "num_beams": 1, "repetition_penalty": 1.0}
    idle = {"top_p": 0.95, "top_k": 50, "seed": 7}
    assert read_generation({**greedy, **idle}, 9) == GenerationLimits((), 9)


def test_another_seed_than_that_of_a_method_that_draws_is_refused():
    for given in ({}, {"seed": None}, {"seed": 7}):
        assert read_generation(given, 9, seed=7) == GenerationLimits((), 9)
    with pytest.raises(UserError, match="seed is 8, but the method draws with seed 7; set --model"):
        read_generation({"seed": 8}, 9, seed=7)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"do_sample": True}, "do_sample is True, but fused decoding is greedy; set --gen_kwargs"),
        ({"temperature": 0.7}, "temperature is 0.7, .* --gen_kwargs temperature=0"),
        ({"do_sample": False, "temperature": 0.7}, "temperature is 0.7"),
        ({"temperature": 1}, "temperature is 1"),
        ({"num_beams": 4}, "num_beams is 4"),
        ({"untli": "."}, "unknown generation setting 'untli'; known are: until, max_gen_toks"),
        ({"until": 3}, "until is 3; give a string or a list"),
        ({"until": ["a", 3]}, "until is .*; give a string or a list"),
        ({"max_gen_toks": "many"}, "max_gen_toks is 'many'; give a whole number above 0"),
        ({"max_tokens": 0}, "max_tokens is 0; give a whole number above 0"),
        ({"max_gen_toks": 5, "max_tokens": 6}, "max_gen_toks=5, max_tokens=6 contradict"),
    ],
)
def test_everything_else_is_refused_in_a_sentence(given, sentence):
    with pytest.raises(UserError, match=sentence):
        read_generation(given, 256)
