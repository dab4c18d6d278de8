"""The section `serve` of a model: a server that the workflow starts."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, field_validator

from adafuse.errors import UserError
from adafuse.models.spec import ModelEntry
from adafuse.options import Located, Number, Section, Text

BY_WORKFLOW = "http://by-the-workflow"
"""What is the `server` of a model that has none before the workflow starts it."""


def _as_text(value: object) -> object:
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


Argument = Annotated[
    str, Field(strict=True), BeforeValidator(_as_text, json_schema_input_type=str | int | float)
]


class ServeConfig(Section):
    """A server that the workflow starts for its decode jobs, and ends after them."""

    engine: Text
    """what runs the model: `vllm` or `llama.cpp`"""
    command: Located
    """the program, in an environment of its own: the path of `vllm` or `llama-server`"""
    gpus: Number = 1
    """GPUs of the server; change it when the model needs several, or runs on CPUs (0)"""
    args: tuple[Argument, ...] = ()
    """further arguments of the program, such as `[--max-model-len, 4096]`; change it when it needs
    some; results change"""

    @field_validator("args")
    @classmethod
    def _leaves_the_address(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for word in value:
            if word.partition("=")[0] in ("--host", "--port"):
                raise ValueError(f"{word!r} is what the workflow sets itself; remove it")
        return value

    @property
    def identity(self) -> list[str]:
        """What results depend on."""
        return [self.engine, *self.args]

    def words(self, model: ModelEntry, address: str, port: str) -> list[str]:
        """Return the command of a model's server, which listens at an address.

        Raises:
            UserError: such a server cannot have the model.
        """
        from adafuse.servers.registry import kind_of  # with an HTTP client
        from adafuse.servers.server import Weights

        path, file = model.source
        weights = Weights(path, file, model.revision, self.gpus, model.trust_remote_code)
        return [*kind_of(self.engine).command(self.command, weights, address, port), *self.args]


def with_server(values: Any) -> Any:
    """Return the settings of a model with a `server` where the workflow starts one.

    Raises:
        UserError: there is another one, too.
    """
    if not isinstance(values, Mapping) or values.get("serve") is None:
        return values
    if values.get("server") not in (None, BY_WORKFLOW):
        raise UserError("the model has both `server` and `serve`; leave out one of them")
    return {**values, "server": BY_WORKFLOW}
