"""What a decoding method is."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

from adafuse.decoding.round import Example
from adafuse.engine.node import Program
from adafuse.errors import UserError
from adafuse.options import IS_MODEL_NUMBER, MethodOptions

if TYPE_CHECKING:
    from adafuse.models.language_model import LanguageModel
    from adafuse.models.placement import Place

OptionsT = TypeVar("OptionsT", bound=MethodOptions)


class Method(ABC, Generic[OptionsT]):
    """A method with its options; `decode` is a coroutine over one example.

    `name` is what users write, `Options` the type of its options. `models` is the count of models
    it needs (fewest, most; None: any number). One that `reads_answers` starts from what each model
    wrote on its own, and has the models write that where nobody gives it; unless it `uses_models`
    besides, they are not loaded where somebody does.
    """

    name: ClassVar[str]
    Options: ClassVar[type[MethodOptions]]
    models: ClassVar[tuple[int, int | None]] = (1, None)
    reads_answers: ClassVar[bool] = False
    uses_models: ClassVar[bool] = True

    def __init__(self, options: OptionsT) -> None:
        self.options = options

    @property
    def top(self) -> int:
        """How many of the likeliest next ids the method reads (2 for a margin)."""
        return 2

    @property
    def replaces_text(self) -> bool:
        """Whether Y may become another text at the end, so that it is not shown before.

        Elsewhere Y only grows (`Example.append`), or comes at the end as a whole.
        """
        return False

    @property
    def checkpoints(self) -> dict[str, str]:
        """The options that name further models which these settings use, with their `model_type`.

        Each is a folder or hub id; its revision is the option of its name with `_revision` behind.
        """
        return {}

    @abstractmethod
    def decode(self, example: Example) -> Program[None]:
        """Decode `example` until it has a stop reason."""

    def prepare(self, models: Sequence["LanguageModel"], place: "Place") -> None:
        """Check the loaded models and make what all examples share, before the first of them.

        Args:
            models: none of them where answers are given and the method asks models for nothing.
            place: where further checkpoints go.

        Raises:
            UserError: the method cannot run on these models.
        """

    def check_models(self, count: int) -> None:
        """Refuse a number of models that the method cannot run, and options that number others.

        Raises:
            UserError: too few or too many models.
        """
        fewest, most = self.models
        if count < fewest or (most is not None and count > most):
            wanted = f"exactly {fewest}" if most == fewest else f"at least {fewest}"
            noun = "model" if fewest == 1 else "models"
            raise UserError(f"method {self.name} needs {wanted} {noun}, not {count}")
        for option, info in self.Options.model_fields.items():
            number = getattr(self.options, option)
            if IS_MODEL_NUMBER in info.metadata and number >= count:
                raise UserError(
                    f"method {self.name}: {option} is {number}, but the models are numbered from 0"
                    f" to {count - 1}; name one of these"
                )
