"""Chat templates of models that think, in the two ways that published ones have."""

import shutil
from pathlib import Path

from tests.conftest import toy_path

_TURNS = (
    "{% for turn in messages %}<|im_start|>{{ turn.role }}\n{{ turn.content }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n"
)
SWITCHED = _TURNS + (
    "{% if enable_thinking is defined and enable_thinking is false %}<think>\n\n</think>\n\n"
    "{% endif %}{% endif %}"
)
"""The model begins its thoughts itself, unless an empty block is there (Qwen3)."""
OPENED = _TURNS + (
    "{% if enable_thinking is defined and enable_thinking is false %}<think>\n\n</think>\n\n"
    "{% else %}<think>\n{% endif %}{% endif %}"
)
"""The prompt begins the thoughts (DeepSeek-R1), unless they are switched off (Qwen3.5)."""
OFF = {"enable_thinking": False}


def with_template(name: str, folder: Path, template: str) -> str:
    """Copy a toy model into a folder, with another chat template; return its path."""
    copied = shutil.copytree(toy_path(name), folder)
    (copied / "chat_template.jinja").write_text(template)
    return str(copied)
