"""The toy ranker and fuser: what they are trained on, and that they learnt something."""

import random
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoTokenizer

import adafuse.toy
from adafuse.methods.llm_blender.networks import (
    NetworkRequest,
    fuser_prompt,
    load_gen_fuser,
    load_pair_ranker,
)
from adafuse.methods.llm_blender.options import LlmBlenderOptions
from adafuse.models.placement import Place
from adafuse.models.spec import ModelEntry
from tools.toy import gen_fuser, pair_ranker
from tools.toy.gen_fuser import nonsense, pieces, shuffled
from tools.toy.records import questions
from tools.toy.tokenizers import fuser_tokenizer, ranker_tokenizer
from tools.toy.train import Recipe
from tools.toy.world import Contest, build_world, contests

MODELS = Path(adafuse.toy.__path__[0]) / "models"
CPU = torch.device("cpu")
PLACE = Place(CPU, torch.float32)


def held_out(count: int) -> list[Contest]:
    return list(contests(build_world(), count, "of the tests"))


@pytest.mark.soak
def test_no_question_of_a_benchmark_is_trained_on() -> None:
    world = build_world()
    parts = [*world.test.values(), *world.dev.values()]
    kept_out = frozenset().union(*(questions(rows) for rows in parts))
    for seed, count in (("ranker", pair_ranker.RECIPE.texts), ("fuser", gen_fuser.RECIPE.texts)):
        prompts = (contest.prompt for contest in contests(world, count, seed))
        asked = {line.removeprefix("Question: ") for p in prompts for line in p.split("\n")}
        assert not kept_out & asked


def test_a_contest_has_wrong_answers_that_differ_from_the_right_one() -> None:
    rng = random.Random(1)
    for contest in held_out(300):
        assert contest.right not in contest.wrong
        assert set(shuffled(contest, rng)) <= {contest.right, *contest.wrong}


def test_nonsense_is_one_to_three_texts_that_the_tokenizer_gives_back() -> None:
    tokenizer = fuser_tokenizer()
    made = list(nonsense(pieces(tokenizer), 300, 20, random.Random(1)))
    assert {len(texts) for texts in made} == {1, 2, 3}
    for texts in made:
        assert tokenizer.decode(gen_fuser.answer_ids(tokenizer, texts[0])[:-1]) == texts[0] != ""


def test_the_fuser_learns_to_write_the_ids_that_it_reads() -> None:
    tokenizer = fuser_tokenizer()
    for contest in held_out(100):
        *ids, end = gen_fuser.answer_ids(tokenizer, contest.right)
        prompt = tokenizer(fuser_prompt("Do it.", contest.prompt, [contest.right]))["input_ids"]
        first = prompt.index(tokenizer.convert_tokens_to_ids("<extra_id_0>"))
        assert end == tokenizer.eos_token_id
        assert ids in (prompt[start : start + len(ids)] for start in (first + 2, first + 3))


def test_the_ranker_prefers_right_answers() -> None:
    ranker = load_pair_ranker(ModelEntry(path=str(MODELS / "pair_ranker")), CPU)
    found = held_out(200)
    forth = ranker.logits([(c.prompt, c.right, c.wrong[0]) for c in found])
    back = ranker.logits([(c.prompt, c.wrong[0], c.right) for c in found])
    assert sum(one > two for one, two in zip(forth, back, strict=True)) > 140


def test_the_fuser_copies_the_first_answer_and_ends_it() -> None:
    fuser = load_gen_fuser(ModelEntry(path=str(MODELS / "gen_fuser")), LlmBlenderOptions(), PLACE)
    rng = random.Random(2)
    asked = [
        NetworkRequest(fuser, contest.prompt, shuffled(contest, rng)) for contest in held_out(24)
    ]
    fuser.evaluate(asked)
    texts, ended = zip(*(request.result for request in asked), strict=True)
    assert all(ended)
    firsts = [request.candidates[0] for request in asked]
    assert sum(text == first for text, first in zip(texts, firsts, strict=True)) > 21


def test_training_a_tokenizer_again_gives_the_committed_one() -> None:
    for name, build in (("pair_ranker", ranker_tokenizer), ("gen_fuser", fuser_tokenizer)):
        committed = AutoTokenizer.from_pretrained(MODELS / name)
        assert build().get_vocab() == committed.get_vocab()
        text = "Der König sah 漢 \\boxed{12}"
        ids = committed.encode(text, add_special_tokens=False)
        assert committed.decode(ids) == text


@pytest.mark.soak
def test_training_twice_gives_the_same_weights(tmp_path: Path) -> None:
    recipe = Recipe(texts=24, batch_tokens=512)
    for train in (pair_ranker.train, gen_fuser.train):
        for name in ("once", "again"):
            train(tmp_path / name, recipe)
        once, again = (load_file(tmp_path / n / "model.safetensors") for n in ("once", "again"))
        assert list(once) == list(again)
        assert all(torch.equal(once[key], again[key]) for key in once)
