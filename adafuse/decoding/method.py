"""What a decoding method is."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

from adafuse.decoding.round import Example
from adafuse.engine.node import Program
from adafuse.errors import UserError
from adafuse.models.spec import ModelEntry
from adafuse.options import IS_MODEL_NUMBER, MethodOptions

if TYPE_CHECKING:
    from adafuse.models.language_model import LanguageModel
    from adafuse.models.placement import Place

OptionsT = TypeVar("OptionsT", bound=MethodOptions)
Models = Sequence["LanguageModel"]


class Method(ABC, Generic[OptionsT]):
    """A method with its options; `decode` is a coroutine over one example.

    `name` is what users write, `models` how many models it needs (fewest, most; None: any number).
    One that `reads_answers` starts from what each model writes on its own; given these, the models
    are loaded only if it `uses_models` for something else. With `one_token`, each round commits a
    token, and F is minus its log-probability.
    """

    name: ClassVar[str]
    Options: ClassVar[type[MethodOptions]]
    models: ClassVar[tuple[int, int | None]] = (1, None)
    reads_answers: ClassVar[bool] = False
    uses_models: ClassVar[bool] = True
    one_token: ClassVar[bool] = False

    def __init__(self, options: OptionsT) -> None:
        self.options = options

    @property
    def top(self) -> int:
        """How many of the likeliest next ids the method reads (2 for a margin)."""
        return 2

    @property
    def replaces_text(self) -> bool:
        """Whether another text may replace Y at the end, so that Y is not streamed."""
        return False

    @property
    def checkpoints(self) -> dict[str, str]:
        """The options that name further models, with the `model_type` of each."""
        return {}

    def checkpoint(self, option: str) -> ModelEntry:
        """Return the model that an option names; more is said by options that begin like it.

        They are OPTION_revision, and OPTION_allow_pickle if there is one.
        """
        values = self.options.model_dump()
        pickled = values.get(f"{option}_allow_pickle", False)
        revision = values[f"{option}_revision"]
        return ModelEntry(path=values[option], revision=revision, allow_pickle=pickled)

    @abstractmethod
    def decode(self, example: Example) -> Program[None]:
        """Decode `example` until it has a stop reason."""

    def load(self, place: "Place") -> None:
        """Load further checkpoints, before `prepare`."""

    def prepare(self, models: Models) -> None:
        """Refuse models that do not fit, and build what all examples share.

        There are no models if answers are given and the method needs nothing else.
        """

    def check_models(self, count: int) -> None:
        """Refuse too few or too many models, and options that name one that is not there."""
        fewest, most = self.models
        if count < fewest or (most is not None and count > most):
            needed = f"exactly {fewest}" if most == fewest else f"at least {fewest}"
            noun = "model" if fewest == 1 else "models"
            raise UserError(f"method {self.name} needs {needed} {noun}, not {count}")
        for option, info in self.Options.model_fields.items():
            number = getattr(self.options, option)
            if IS_MODEL_NUMBER in info.metadata and number >= count:
                raise UserError(
                    f"method {self.name}: {option} is {number}, but the models are numbered from 0"
                    f" to {count - 1}; name one of these"
                )
