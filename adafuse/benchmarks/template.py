"""The text around one question, with its place."""

from adafuse.errors import UserError

SLOT = "{question}"


def fill(template: str, question: str) -> str:
    """Put a question into its place; braces elsewhere in the template are kept."""
    return template.replace(SLOT, question)


def check_template(template: str, owner: str) -> None:
    """Refuse a template in which the question has no place, or more than one.

    Raises:
        UserError: `{question}` does not occur exactly once.
    """
    if (count := template.count(SLOT)) != 1:
        raise UserError(
            f"{owner}: prompt {template!r} holds {SLOT} {count} times; write it exactly once"
        )
