import shutil

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from adafuse.errors import ExampleError, UserError
from adafuse.methods.llm_blender.networks import (
    TASK,
    GenFuser,
    NetworkRequest,
    fuser_prompt,
    load_gen_fuser,
)
from adafuse.methods.llm_blender.options import LlmBlenderOptions
from adafuse.models.placement import Place
from adafuse.models.spec import ModelEntry
from tests.conftest import toy_path

CPU = torch.device("cpu")
PLACE = Place(CPU, torch.float32)


def load(path):
    """The fuser at a path, which writes short texts."""
    options = LlmBlenderOptions(fuser=path, fused_tokens=16, instruction="Do it.")
    return load_gen_fuser(ModelEntry(path=path), options, PLACE)


FUSER = load(toy_path("gen_fuser"))
LONG = "the old man sees a red house " * 60


def prompt(fuser, source, *candidates):
    """The text of the prompt that a fuser reads."""
    ids = fuser.prompt_ids(source, candidates)
    return fuser.tokenizer.decode(ids), len(ids)


def limited(prompt_tokens, candidate_tokens=8):
    """The fuser with other limits."""
    return changed(prompt_tokens=prompt_tokens, candidate_tokens=candidate_tokens)


def changed(**options):
    """The fuser with other options."""
    options = FUSER.options.model_copy(update=options)
    return GenFuser(FUSER.network, FUSER.tokenizer, options)


def test_the_prompt_is_the_published_one():
    written = fuser_prompt("Translate to German.", "Good morning.", ["Guten Morgen.", "Guten Tag."])
    assert written == (
        "Instruction: Translate to German.</s>Input: Good morning.</s>"
        "Candidate 0: <extra_id_0>:Guten Morgen.</s>Candidate 1: <extra_id_1>:Guten Tag.</s>"
        "Summarize candidates into a better one for the given instruction:"
    )


def test_what_fits_is_not_cut():
    whole = fuser_prompt("Do it.", "the input", ["one", "two"])
    encoded = FUSER.tokenizer(whole, add_special_tokens=False)["input_ids"]
    assert FUSER.prompt_ids("the input", ("one", "two")) == encoded


def test_a_long_candidate_is_cut_and_marked():
    text, _ = prompt(limited(1024, candidate_tokens=5), "the input", LONG, "short")
    cut = FUSER.tokenizer.decode(FUSER.tokenizer(LONG, add_special_tokens=False)["input_ids"][:5])
    assert f"{cut}...</s>" in text
    assert "short</s>" in text


@given(
    spare=st.integers(0, 140),
    source=st.integers(0, 40),
    candidates=st.lists(st.integers(0, 60), min_size=1, max_size=4),
)
@settings(deadline=None, max_examples=40)
def test_the_task_is_always_there_and_the_limit_kept(spare, source, candidates):
    texts = [("a word " * count).strip() for count in candidates]
    room = prompt(FUSER, "", *[""] * len(texts))[1] + spare
    text, length = prompt(limited(room, 30), "an input " * source, *texts)
    assert text.endswith(TASK)
    assert length <= room


def test_candidates_are_cut_before_the_source_and_the_source_from_its_start():
    source = "first " + "middle " * 20 + "last"
    roomy, _ = prompt(limited(200, 100), source, LONG, LONG)
    assert source in roomy
    tight, _ = prompt(limited(110, 100), source, LONG, LONG)
    assert "first" not in tight
    assert "last" in tight
    assert tight.count(":the old man") == 2


def test_a_limit_that_the_bare_prompt_breaks_is_refused():
    limited(60).check_prompt(2)
    with pytest.raises(UserError, match=r"prompt_tokens is 9, but the fuser's prompt takes \d+"):
        limited(9).check_prompt(2)


def test_a_text_does_not_depend_on_the_prompts_beside_it():
    sources = [("Question: Who founded the town of Orrin?\nAnswer:", ("Sel Tor", "Sel Kor"))]
    sources += [("Translate English to German.\nQuestion: The dog.\nAnswer:", ("Der Hund.",))]
    sources += [(LONG, ("a", LONG, "c")), ("a", ("", "b"))]

    def ask():
        return [NetworkRequest(FUSER, *source) for source in sources * 2]

    together, alone = ask(), ask()
    FUSER.evaluate(together)
    for request in alone:
        FUSER.evaluate([request])
    assert [r.result for r in together] == [r.result for r in alone]


def test_a_text_ends_by_itself_or_at_the_limit():
    source = "Translate English to German.\nQuestion: The cold king sees the cat.\nAnswer:"
    answers = ("Der kalte König sieht die Katze.", "Der kalte König sieht den Hund.")
    for tokens, ended in ((32, True), (2, False)):
        instruction = "Give the best response to the input."
        fuser = changed(fused_tokens=tokens, instruction=instruction)
        request = NetworkRequest(fuser, source, answers)
        fuser.evaluate([request])
        text, found = request.result
        assert text
        assert found is ended


def test_what_is_no_encoder_decoder_is_refused():
    with pytest.raises(UserError, match=r"fuser .*llama' is not an encoder-decoder \(llama\)"):
        load(toy_path("llama"))
    with pytest.raises(UserError, match="'/nowhere/fuser' is not a folder"):
        load("/nowhere/fuser")


def test_a_fuser_without_tokenizer_is_refused(tmp_path):
    folder = shutil.copytree(toy_path("gen_fuser"), tmp_path / "fuser")
    for path in folder.glob("*token*"):
        path.unlink()
    with pytest.raises(UserError, match=r"has no tokenizer; put its tokenizer.json"):
        load(str(folder))


def test_pickled_weights_of_a_fuser_are_read_only_where_they_are_allowed(tmp_path):
    folder = shutil.copytree(toy_path("gen_fuser"), tmp_path / "fuser")
    torch.save(FUSER.network.state_dict(), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    with pytest.raises(UserError, match=r"fuser_allow_pickle for the fuser of llm_blender"):
        load(str(folder))
    entry = ModelEntry(path=str(folder), allow_pickle=True)
    fuser = load_gen_fuser(entry, FUSER.options, PLACE)
    asked = NetworkRequest(fuser, "Who?", ["Mira", "Orrin"])
    again = NetworkRequest(FUSER, "Who?", ["Mira", "Orrin"])
    fuser.evaluate([asked])
    FUSER.evaluate([again])
    assert asked.result == again.result


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("beams", [1, 4])
def test_logits_that_are_not_finite_end_the_example_and_no_other(monkeypatch, value, beams):
    fuser = changed(beams=beams)
    sources = [("Question: Who?", ("Ann", "Bob")), ("Question: Where?", ("Rome", "Oslo"))]
    alone = NetworkRequest(fuser, *sources[1])
    fuser.evaluate([alone])
    forward = fuser.network.lm_head.forward

    def broken(states):
        logits = forward(states).clone()
        logits[:beams, :, 3] = value
        return logits

    monkeypatch.setattr(fuser.network.lm_head, "forward", broken)
    program = fuser.fuse(*sources[0])
    (first,), second = next(program), NetworkRequest(fuser, *sources[1])
    fuser.evaluate([first, second])
    assert second.result == alone.result
    with pytest.raises(ExampleError, match=r"fuser .*gen_fuser gives logits that are not finite"):
        next(program)
