"""Thoughts end where an answer begins, and the prompt says whether there are any."""

import pytest
from transformers import AutoTokenizer, GenerationConfig, LlamaConfig

from adafuse.errors import UserError
from adafuse.records.result import Chat
from adafuse.tokenization.prompts import thought_marks
from adafuse.tokenization.text import ModelTokenizer, end_ids
from adafuse.tokenization.thoughts import Thoughts, shared_thoughts
from tests.conftest import SHARED, toy_path
from tests.support.thinking import (
    ANALYSIS,
    ANSWER,
    CHANNELS,
    CHAT,
    FINAL,
    OFF,
    OPENED,
    SPECIAL,
    SWITCHED,
    THOUGHTS,
)

MARKS = "<think>", "</think>"


def model(name, template, **settings):
    tokenizer = AutoTokenizer.from_pretrained(toy_path(name))
    tokenizer.chat_template = template
    return ModelTokenizer(name=name, tokenizer=tokenizer, end_ids={0: "tokenizer"}, **settings)


def shared(*models, prompt=CHAT):
    return shared_thoughts(models, prompt, [each.prompt_ids(prompt) for each in models])


@pytest.mark.parametrize(
    ("opened", "text", "length"),
    [
        (False, THOUGHTS + ANSWER, len(THOUGHTS)),
        (True, THOUGHTS.removeprefix("<think>") + ANSWER, len(THOUGHTS) - len("<think>")),
        (False, THOUGHTS, len(THOUGHTS)),
        (False, "<think>\nRustan", len("<think>\nRustan")),
        (True, "Rustan", len("Rustan")),
        (False, "Rustan </think> Paila", 0),
        (False, "<thin", 0),
        (False, THOUGHTS + THOUGHTS + ANSWER, len(THOUGHTS)),
        (False, "\n</think> Paila", len("\n</think> ")),
        (True, "</think> Paila", len("</think> ")),
    ],
)
def test_an_answer_begins_after_the_first_end_of_thoughts(opened, text, length):
    assert Thoughts(*MARKS, opened).length(text) == length


@pytest.mark.parametrize("opened", [False, True])
def test_an_answer_begins_in_the_final_channel(opened):
    thoughts, bare = Thoughts(ANALYSIS, FINAL, opened), "<|channel|>final<|message|>"
    said = f"Who?<|end|><|start|>assistant<|channel|>commentary<|message|>Hm.{FINAL}"
    for begun in (said if opened else ANALYSIS + said, bare):
        assert thoughts.length(begun + ANSWER) == len(begun)
        growing = [thoughts.split((begun + ANSWER)[:n], whole=False) for n in range(len(begun) + 1)]
        assert {answer for _, answer in growing} == {""}
        assert thoughts.split(begun + ANSWER, whole=True)[1] == ANSWER
    assert thoughts.split(bare + ANSWER, whole=True)[0] == ""


@pytest.mark.parametrize("opened", [False, True])
@pytest.mark.parametrize("text", [THOUGHTS + ANSWER, THOUGHTS, "<think>\nWho </", " Paila", "<thi"])
def test_parts_of_a_text_that_grows_only_grow(opened, text):
    thoughts = Thoughts(*MARKS, opened)
    text = text.removeprefix("<think>") if opened else text
    before = ("", "")
    for size in range(len(text) + 1):
        now = thoughts.split(text[:size], whole=False)
        assert all(new.startswith(old) for old, new in zip(before, now, strict=True))
        before = now
    whole = thoughts.split(text, whole=True)
    assert all(new.startswith(old) for old, new in zip(before, whole, strict=True))
    assert whole[1] == text[thoughts.length(text) :]
    if text.endswith(ANSWER):
        assert whole == ("Rustan, no.\nOr yes?", ANSWER)


def test_marks_are_those_that_a_template_names():
    def marks(template, **given):
        return thought_marks(model("qwen3", template).tokenizer, given)

    assert marks(SWITCHED) == MARKS
    assert marks("{{ '[THINK]' }}{{ '[/THINK]' }}") == ("[THINK]", "[/THINK]")
    assert marks("<tool_call></tool_call>") is None
    assert marks(SWITCHED, begin="Thoughts:", end="Answer:") == ("Thoughts:", "Answer:")
    assert marks(None) is None
    assert marks(CHANNELS) == (ANALYSIS, FINAL)


def test_marks_that_are_special_tokens_do_not_end_a_text():
    tokenizer = AutoTokenizer.from_pretrained(toy_path("llama"))
    added = ["[THINK]", "[/THINK]", "[TOOL]"]
    tokenizer.add_special_tokens({"additional_special_tokens": added})
    ids = tokenizer.convert_tokens_to_ids(added)
    assert {*ids} <= end_ids(LlamaConfig(), None, tokenizer, "llama").keys()
    tokenizer.chat_template = "{# [THINK] [/THINK] #}"
    ends = end_ids(LlamaConfig(), None, tokenizer, "llama")
    assert [index in ends for index in ids] == [False, False, True]


def test_of_the_tokens_of_channels_only_the_last_ends_a_text():
    tokenizer = AutoTokenizer.from_pretrained(toy_path("llama"))
    tokenizer.add_special_tokens({"additional_special_tokens": list(SPECIAL)})
    tokenizer.chat_template = CHANNELS
    ids = tokenizer.convert_tokens_to_ids(list(SPECIAL))
    both = GenerationConfig(eos_token_id=ids[-2:])
    ends = end_ids(LlamaConfig(), both, tokenizer, "llama")
    assert [index in ends for index in ids] == [False] * 4 + [True]
    assert ends[ids[-1]] == "generation config"
    tokenizer.eos_token, tokenizer.chat_template = "<|end|>", f"{CHANNELS}{{# <think> #}}"
    given = {"begin": "<|start|>", "end": "<|return|><|end|>"}
    with pytest.raises(UserError, match="no end token other than those around its thoughts; set"):
        end_ids(LlamaConfig(eos_token_id=None), None, tokenizer, "llama", thoughts=given)


def test_marks_may_be_given_where_a_template_names_none():
    plain = "{% for turn in messages %}{{ turn.content }}{% endfor %}"
    given = {"begin": "Thoughts:", "end": "Answer:"}
    assert shared(model("qwen3", plain)) is None
    thoughts = shared(model("qwen3", plain, thoughts=given))
    assert thoughts == Thoughts("Thoughts:", "Answer:")
    assert thoughts.split("Thoughts: Rustan? Answer: Paila", whole=True) == ("Rustan?", "Paila")


@pytest.mark.parametrize(
    ("begin", "end"), [("<think>\n", "</think>\n\n"), (" <think>", "\n</think>")]
)
def test_white_space_around_given_marks_hides_no_thoughts(begin, end):
    given = {"begin": begin, "end": end}
    for template in (OPENED, SWITCHED):
        thoughts = shared(model("qwen3", template, thoughts=given))
        assert thoughts == Thoughts(*MARKS, opened=template == OPENED)
        assert shared(model("qwen3", template, thoughts=given, chat_template_kwargs=OFF)) is None


def test_the_prompt_says_whether_a_model_thinks():
    assert shared(model("qwen3", SWITCHED)) == Thoughts(*MARKS)
    assert shared(model("qwen3", OPENED)) == Thoughts(*MARKS, opened=True)
    for template in (SWITCHED, OPENED):
        assert shared(model("qwen3", template, chat_template_kwargs=OFF)) is None
    assert shared(model("qwen3", SWITCHED), prompt="Who?") is None
    assert shared(model("qwen3", SWITCHED, chat=True), prompt="Who?") == Thoughts(*MARKS)


@pytest.mark.parametrize(("begun", "thinks"), [("It", False), ("<think>\nIt", True)])
def test_an_answer_that_was_begun_says_so_itself(begun, thinks):
    template = SWITCHED.replace(
        "<|im_end|>\n{% endfor", "{% if not loop.last %}.{% endif %}{% endfor"
    )
    chat = Chat([*CHAT.turns, {"role": "assistant", "content": begun}], continues=True)
    assert (shared(model("qwen3", template), prompt=chat) is not None) == thinks


def test_one_that_thinks_and_one_that_does_not_are_refused_with_the_fix():
    plain = model("llama", "{% for turn in messages %}{{ turn.content }}{% endfor %}")
    fix = r"set chat_template_kwargs to \{enable_thinking: false\} for qwen3$"
    for template in (SWITCHED, OPENED):
        thinker = model("qwen3", template)
        with pytest.raises(UserError, match=f"qwen3 thinks before .* llama does not, .*; {fix}"):
            shared(thinker, plain)
        with pytest.raises(UserError, match=f"qwen3 thinks before .* llama does not, .*; {fix}"):
            shared(plain, thinker)
        assert shared(model("qwen3", template, chat_template_kwargs=OFF), plain) is None
        assert shared(thinker, model("llama", template)) is not None
    with pytest.raises(UserError, match="and llama marks its thoughts otherwise, so they cannot"):
        shared(model("qwen3", SWITCHED), model("llama", OPENED))
    always = OPENED.replace("enable_thinking is defined and enable_thinking is false", "false")
    for template in (always, CHANNELS):
        with pytest.raises(UserError, match=r"fuse models that think in the same form$"):
            shared(model("qwen3", template), plain)


def test_a_template_that_only_reads_thoughts_leaves_it_to_the_text():
    reads = "{% for turn in messages %}{{ turn.content.split('</think>')[-1] }}{% endfor %}"
    plain = model("llama", "{% for turn in messages %}{{ turn.content }}{% endfor %}")
    assert shared(model("qwen3", reads), plain) == Thoughts(*MARKS)


def test_qwen3_s_tokenizer_begins_and_ends_thoughts_with_one_token_each():
    folder = SHARED / "tokenizers/qwen2.5-qwen3"
    if not folder.is_dir():
        pytest.skip(f"the real tokenizers are not at {folder}")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.chat_template = SWITCHED
    assert len(tokenizer.encode("".join(MARKS), add_special_tokens=False)) == 2
    for variables, thoughts in (({}, Thoughts(*MARKS)), (OFF, None)):
        real = ModelTokenizer(
            name="qwen3", tokenizer=tokenizer, end_ids={}, chat_template_kwargs=variables
        )
        assert shared(real) == thoughts
        anchor = real.anchor(real.prompt_ids(CHAT))
        for text in (THOUGHTS + ANSWER, ANSWER):
            assert anchor.added(real.encode_span(text)) == text
