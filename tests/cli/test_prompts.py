import pytest

from adafuse.cli.generate import read_prompts
from adafuse.errors import UserError


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (
            '{"id": "a", "prompt": "x"}\n{"id": "a", "prompt": "y"}',
            r"line 2: id 'a' occurs twice; give every prompt one of its own",
        ),
        (
            '{"id": "a", "prompt": "x"}\n\n{"prompt": "y"}',
            r"line 3 has no 'id'; add it",
        ),
        ('{"id": "a", "prompt": " "}', r"line 1: prompt must hold some text, not ' '"),
        ('{"id": "a"}', r"line 1 has no 'prompt'; add it"),
        ('{"id": true, "prompt": "x"}', r"line 1: id must be a valid string, not True"),
        ('{"id": "a", "prompt": "x"', r'line 1: broken JSON \(.*column 2.*; write {"id"'),
        ("[1]", r"line 1: '\[1\]' is not an object"),
        ("\n", r"holds no prompt"),
    ],
)
def test_bad_prompts_are_refused_with_their_line(tmp_path, content, sentence):
    path = tmp_path / "in.jsonl"
    path.write_text(content)
    with pytest.raises(UserError, match=sentence):
        read_prompts(path)


def test_a_missing_file_and_other_encodings_are_refused(tmp_path):
    with pytest.raises(UserError, match="does not exist"):
        read_prompts(tmp_path / "none.jsonl")
    (tmp_path / "in.jsonl").write_bytes(b'{"id": "a", "prompt": "\xe4"}')
    with pytest.raises(UserError, match="is not UTF-8"):
        read_prompts(tmp_path / "in.jsonl")


def test_prompts_keep_their_order_and_their_line_separators(tmp_path):
    path = tmp_path / "in.jsonl"
    path.write_text('{"id": 2, "prompt": "x\u2028y"}\n{"id": "1", "prompt": " z "}\n')
    assert [(p.id, p.prompt) for p in read_prompts(path)] == [("2", "x\u2028y"), ("1", " z ")]
