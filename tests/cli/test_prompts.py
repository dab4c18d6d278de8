import json
import os
import threading

import pytest

from adafuse.cli.generate import read_prompts
from adafuse.ensemble import Ensemble
from adafuse.errors import UserError
from adafuse.records.result import Chat


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (
            '{"id": "a", "prompt": "x"}\n{"id": "a", "prompt": "y"}',
            r"line 2: id 'a' occurs twice; give every prompt one of its own",
        ),
        (
            '{"id": 3, "prompt": "x"}\n\n{"prompt": "y"}',
            r"line 3: id '3' occurs twice; give every prompt one of its own",
        ),
        (
            '{"prompt": "x", "messages": []}',
            r"line 1 has a prompt and messages; give one of them",
        ),
        *(
            (
                f'{{"prompt": "x", "{name}": 1}}',
                f"line 1 has '{name}', which is set for all prompts",
            )
            for name in ("system", "stop", "max_completion_tokens", "chat_template_kwargs")
        ),
        (
            '{"prompt": "x", "top_p": 1.0, "temperature": 0.7}',
            r"line 1 has 'temperature' 0.7, but decoding is greedy; remove it",
        ),
        ('{"messages": "x"}', r"line 1: messages is a text; give a list of messages, or a pro"),
        ('{"messages": []}', r"line 1: prompt: it is \[\]; give a text, a Chat or a list of mess"),
        ('{"messages": [{"role": "user"}]}', r"line 1: prompt: {'role': 'user'} is not a message"),
        ('{"id": "a", "prompt": " "}', r"line 1: prompt must hold some text, not ' '"),
        ('{"id": "a"}', r"line 1 has no 'prompt'; add it"),
        ('{"id": true, "prompt": "x"}', r"line 1: id must be a valid string, not True"),
        ('{"id": "a", "prompt": "x"', r'line 1: broken JSON \(.*column 2.*; write {"prompt"'),
        ("[1]", r"line 1: '\[1\]' is not an object"),
        ("\n", r"holds no prompt"),
    ],
)
def test_bad_prompts_are_refused_with_their_line(tmp_path, content, sentence):
    path = tmp_path / "in.jsonl"
    path.write_text(content)
    with pytest.raises(UserError, match=sentence):
        read_prompts(path)


def test_settings_that_change_nothing_are_left_alone(tmp_path):
    path = tmp_path / "in.jsonl"
    path.write_text('{"prompt": "x", "n": 4, "temperature": 0, "top_p": 1.0, "top_k": null}')
    assert [row.prompt for row in read_prompts(path)] == ["x"]


def test_an_error_names_the_file_after_rows_with_settings(tmp_path):
    path = tmp_path / "prompts.jsonl"
    path.write_text('{"prompt": "x", "temperature": 0}\n{"prompt": ""}')
    with pytest.raises(UserError, match=r"^.*prompts\.jsonl, line 2: prompt must hold some text"):
        read_prompts(path)


def test_a_missing_file_and_other_encodings_are_refused(tmp_path):
    with pytest.raises(UserError, match="does not exist"):
        read_prompts(tmp_path / "none.jsonl")
    (tmp_path / "in.jsonl").write_bytes(b'{"id": "a", "prompt": "\xe4"}')
    with pytest.raises(UserError, match="is not UTF-8"):
        read_prompts(tmp_path / "in.jsonl")


def test_a_pipe_with_a_name_is_read_and_a_folder_called_one(tmp_path):
    os.mkfifo(pipe := tmp_path / "pipe")
    writer = threading.Thread(target=pipe.write_text, args=('{"prompt": "x"}\n',))
    writer.start()
    assert [prompt.prompt for prompt in read_prompts(pipe)] == ["x"]
    writer.join()
    with pytest.raises(UserError, match="cannot be read: Is a directory"):
        read_prompts(tmp_path)


def test_prompts_keep_their_order_and_their_line_separators(tmp_path):
    path = tmp_path / "in.jsonl"
    path.write_text('{"id": 2, "prompt": "x\u2028y"}\n{"id": "1", "prompt": " z "}\n')
    assert [(p.id, p.prompt) for p in read_prompts(path)] == [("2", "x\u2028y"), ("1", " z ")]


def test_without_an_id_the_line_is_one_and_a_byte_order_mark_is_no_part_of_it(tmp_path):
    path = tmp_path / "in.jsonl"
    path.write_text('\ufeff{"prompt": "x"}\n\n{"prompt": "y"}\n', encoding="utf-8")
    assert [(p.id, p.prompt) for p in read_prompts(path)] == [("1", "x"), ("3", "y")]


def test_a_text_file_has_a_prompt_a_line_with_written_line_breaks(tmp_path):
    path = tmp_path / "in.txt"
    path.write_bytes(b"Q: Who?\\nA:\r\n\nQ: Where?\\nA:\n")
    found = [(p.id, p.prompt) for p in read_prompts(path)]
    assert found == [("1", "Q: Who?\nA:"), ("3", "Q: Where?\nA:")]


SHOTS = "Answer briefly.\n\nQuestion: who?\nAnswer: Ann\n\nQuestion: where?\nAnswer: Rome\n"


@pytest.mark.parametrize("shots", [SHOTS, SHOTS.replace("Answer: ", "Answer:\n"), "Q: a\nA: b\n"])
def test_few_shot_examples_are_no_prompts(tmp_path, shots):
    path = tmp_path / "prompts.txt"
    path.write_text(shots)
    line = 1 + shots.split("\n").index(next(x for x in shots.split("\n") if x[0:1] == "Q"))
    said = rf"prompts.txt, line {line}, begins what looks like a few-shot example .* `shots: "
    with pytest.raises(UserError, match=said):
        read_prompts(path)


def test_a_text_in_paragraphs_is_continued_line_by_line_with_a_warning(tmp_path, capsys):
    path = tmp_path / "prompts.txt"
    path.write_text("Translate.\n\nTranslate only this.\n")
    assert [row.prompt for row in read_prompts(path)] == ["Translate.", "Translate only this."]
    assert "prompts.txt has empty lines: each other line is continued" in capsys.readouterr().err
    path.write_text("\nOne\nTwo\n\n")
    assert len(read_prompts(path)) == 2
    assert not capsys.readouterr().err


def test_rows_of_a_benchmark_are_no_prompts(tmp_path):
    path = tmp_path / "test_set.jsonl"
    path.write_text('{"question": "who?", "answer": ["Ann"]}\n')
    with pytest.raises(UserError, match=r"line 1 has a question and an answer, .* `source: "):
        read_prompts(path)


def test_messages_are_a_chat(tmp_path):
    path = tmp_path / "in.jsonl"
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Who?"}]
    path.write_text(json.dumps({"id": "a", "messages": messages}))
    (row,) = read_prompts(path)
    assert row.prompt == Chat(messages)
    assert json.loads(row.text) == messages


@pytest.mark.parametrize("before", ["{0}", "{0}{0}", "\n{0} {0}"])
def test_start_tokens_in_a_file_of_prompts_change_nothing(tmp_path, pair, before):
    one = Ensemble([pair.models[1]])
    texts = [before.format(one.models[0].tokenizer.bos_token) + "Question: Who?", "Question: Who?"]
    path = tmp_path / "in.jsonl"
    path.write_text("".join(json.dumps({"prompt": text}) + "\n" for text in texts))
    prompts = [prompt.prompt for prompt in read_prompts(path)]
    doubled, alone = one.generate(prompts, method="single", max_new_tokens=4)
    assert (doubled.text, doubled.prompt_tokens) == (alone.text, alone.prompt_tokens)
