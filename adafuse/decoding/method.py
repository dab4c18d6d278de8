"""What a decoding method is."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar

from adafuse.decoding.fusion import FusionOptions, WeightingOptions
from adafuse.decoding.gate import DEVELOPMENT
from adafuse.decoding.round import Example
from adafuse.decoding.weights import weigh_by_prompt
from adafuse.engine.node import Program
from adafuse.errors import UserError
from adafuse.models.spec import ModelEntry, refuse_served
from adafuse.options import IS_MODEL_NUMBER, MethodOptions
from adafuse.plugins import code_of

if TYPE_CHECKING:
    from adafuse.models.language_model import LanguageModel
    from adafuse.models.placement import Place

OptionsT = TypeVar("OptionsT", bound=MethodOptions)
Models = Sequence["LanguageModel"]


class Method(ABC, Generic[OptionsT]):
    """Base class of decoding methods; an instance is a method with its options.

    Attributes:
        name: the name that users write.
        Options: the frozen pydantic model of the options.
        models: the fewest and the most models that the method can use; None: no upper limit.
        reads_answers: the method starts from the texts that the models generate by themselves.
        uses_models: a method that `reads_answers` needs the models for something else, too;
            otherwise they are not loaded where their answers are given.
        drafts: guessed tokens can spare forwards; they cannot where texts are sampled.
        one_token: each round commits one token, and F(s) is minus its log-probability.
        threshold: the option that says below which margin a model is unsure, if there is one.
    """

    name: ClassVar[str]
    Options: ClassVar[type[MethodOptions]]
    models: ClassVar[tuple[int, int | None]] = (1, None)
    reads_answers: ClassVar[bool] = False
    uses_models: ClassVar[bool] = True
    drafts: ClassVar[bool] = True
    one_token: ClassVar[bool] = False
    threshold: ClassVar[str | None] = None

    def __init__(self, options: OptionsT) -> None:
        self.options = options

    @property
    def plugins(self) -> dict[str, str]:
        """The packages from outside that decode, with the digest of their code."""
        return code_of(type(self), *self.options.functions)

    @property
    def top(self) -> int:
        """The k of the top-k next tokens that the method reads; a margin needs 2."""
        return 2

    @property
    def reads_distributions(self) -> bool:
        """Whether the method reads p_k of all tokens, which servers do not give."""
        return False

    @property
    def replaces_text(self) -> bool:
        """Whether the method may replace the text at its end, so that it is not streamed."""
        return False

    @property
    def checkpoints(self) -> dict[str, str]:
        """The options that name checkpoints of the method, with the `model_type` of each."""
        return {}

    def checkpoint(self, option: str) -> ModelEntry:
        """Return the checkpoint that `option` names.

        The options `{option}_revision` and, if there is one, `{option}_allow_pickle` complete it.
        """
        values = self.options.model_dump()
        pickled = values.get(f"{option}_allow_pickle", False)
        revision = values[f"{option}_revision"]
        return ModelEntry(path=values[option], revision=revision, allow_pickle=pickled)

    @property
    def needs_fit(self) -> bool:
        """Whether a gate is fitted for it on development rows before it can decode."""
        return isinstance(self.options, FusionOptions) and self.options.gate == DEVELOPMENT

    @property
    def files(self) -> dict[str, str]:
        """The options that name files which the method reads, but checkpoints, with the paths."""
        gate = self.options.gate if isinstance(self.options, FusionOptions) else None
        return {} if gate is None else {"gate": gate}

    @property
    def unfitted(self) -> dict[str, Any]:
        """The options, as in JSON, with which rows are decoded that a gate is fitted on."""
        return self.options.model_dump(mode="json", exclude=set(self.options.replaced_by_gate))

    def for_scorer(self, scorer: str) -> Self:
        """Return the method for a benchmark of this scorer; a vote counts answers as it does."""
        return self

    def check_files(self, models: Sequence[str]) -> None:
        """Refuse files that are not for these models, given by their paths, before one is loaded.

        Raises:
            UserError: such a file, or one that cannot be read.
        """
        if isinstance(self.options, FusionOptions) and not self.needs_fit:
            self.options.rule(models)

    def begin(self, example: Example) -> Program[None]:
        """Do what comes before `decode`: read the prompt for `weighting: prompt`."""
        if isinstance(self.options, WeightingOptions) and self.options.weighting == "prompt":
            yield from weigh_by_prompt(example)

    @abstractmethod
    def decode(self, example: Example) -> Program[None]:
        """Decode one example: a generator that yields the nodes of token trees to evaluate.

        It commits spans or tokens until the example has a stop reason.
        """

    def load(self, place: "Place") -> None:
        """Load the method's own checkpoints; called before `prepare`."""

    def prepare(self, models: Models) -> None:
        """Check the models, and build what all examples share, such as a table of tokens.

        It is called once, before the first example. `models` is empty if the models' answers are
        given and the method needs nothing else.

        Raises:
            UserError: the method cannot use these models.
        """

    def check_served(self, names: Sequence[str]) -> None:
        """Check that models on servers, given by name, will do.

        Raises:
            UserError: there are some, and the method `reads_distributions`.
        """
        if names and self.reads_distributions:
            refuse_served(names[0], f"method {self.name}")

    def check_models(self, count: int) -> None:
        """Check the number of models, and the options that are numbers of models.

        Raises:
            UserError: too few or too many models, or an option that names none of them.
        """
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
