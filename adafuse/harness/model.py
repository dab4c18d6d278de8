"""An ensemble as `--model adafuse` of lm-evaluation-harness."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from lm_eval import utils
from lm_eval.api.instance import Instance
from lm_eval.api.model import LM
from tqdm import tqdm

from adafuse.ensemble import Ensemble
from adafuse.errors import UserError
from adafuse.harness.arguments import read_arguments
from adafuse.harness.chats import read_prompt, write_chat
from adafuse.harness.failures import Failures
from adafuse.harness.generation import Wanted, read_generation
from adafuse.harness.info import describe, settings
from adafuse.harness.likelihoods import fuse, read_pair
from adafuse.harness.trace import Trace
from adafuse.models.prompts import check_chat
from adafuse.records import Result

DEFAULT_DEVICE = "cuda:0"
"""What the harness says where nobody names a device."""


class AdaFuseLM(LM):  # type: ignore[misc]  # the harness has no types
    """Answers the harness's requests with all models together (docs/lm-eval.md)."""

    def __init__(self, **given: Any) -> None:
        """Check all arguments, then load the models.

        Raises:
            UserError: an argument or a model that cannot be used.
        """
        super().__init__()
        self._arguments, self._method = read_arguments(given)
        path = self._arguments.trace
        self._trace = Trace(path, settings(self._arguments, self._method)) if path else None
        self._failures = Failures(self._arguments.max_error_share)
        models = self._arguments.models
        self._ensemble = Ensemble.from_pretrained(models, **self._arguments.loading())

    @classmethod
    def create_from_arg_obj(
        cls, arg_dict: Mapping[str, Any], additional_config: Mapping[str, Any] | None = None
    ) -> "AdaFuseLM":
        """Make the model from `--model_args`, which win over the flags in `additional_config`."""
        flags = {k: v for k, v in (additional_config or {}).items() if v is not None}
        if flags.get("device") == DEFAULT_DEVICE and not torch.cuda.is_available():
            del flags["device"]
        return cls(**{**flags, **arg_dict})

    @classmethod
    def create_from_arg_string(
        cls, arg_string: str, additional_config: Mapping[str, Any] | None = None
    ) -> "AdaFuseLM":
        """Make the model from "models=A+B,tau=0.7"; see `create_from_arg_obj`."""
        return cls.create_from_arg_obj(
            utils.simple_parse_args_string(arg_string), additional_config
        )

    def generate_until(self, requests: Sequence[Instance]) -> list[str]:
        """Continue every prompt greedily; requests that ask for the same are decoded together.

        Raises:
            UserError: generation settings that are not greedy, or too many failed requests.
        """
        distinct = {id(request): request for request in requests}  # repeats are one object
        default = self._arguments.max_gen_toks
        groups: dict[Wanted, list[Instance]] = {}
        for request in distinct.values():
            groups.setdefault(read_generation(request.args[1], default), []).append(request)
        texts: dict[int, str] = {}
        with tqdm(total=len(distinct), unit="prompt", disable=None) as bar:
            for wanted, group in groups.items():
                for number, result in self._decoded(wanted, group):
                    texts[id(group[number])] = self._take(group[number], result)
                    bar.update()
        if self._trace:
            self._trace.write(map(_name, distinct.values()))
        self._failures.check("generate_until", len(distinct))
        return [texts[id(request)] for request in requests]

    def loglikelihood(self, requests: Sequence[Instance]) -> list[tuple[float, bool]]:
        """Return the weighted mean of the models' log-likelihoods, and if all agree greedily.

        Raises:
            UserError: too many failed requests.
        """
        arguments, weights = self._arguments, self._ensemble.weights
        pairs = [read_pair(*request.args[:2]) for request in requests]
        stream = self._ensemble.loglikelihoods(
            pairs, batch_size=arguments.batch_size, engine=arguments.engine
        )
        found: dict[int, tuple[float, bool]] = {}
        for number, likelihood in tqdm(stream, total=len(pairs), unit="text", disable=None):
            found[number] = fuse(likelihood, weights)
            if likelihood.error is not None:
                self._failures.add(_name(requests[number]), likelihood.error)
            else:
                self.cache_hook.add_partial("loglikelihood", requests[number].args, found[number])
        self._failures.check("loglikelihood", len(pairs))
        return [found[number] for number in range(len(pairs))]

    def loglikelihood_rolling(self, requests: Sequence[Instance]) -> list[float]:
        """Refuse: models cut a long text into windows at different places.

        Raises:
            UserError: always.
        """
        raise UserError(
            f"task {requests[0].task_name!r} asks for the perplexity of whole texts, which"
            " --model adafuse does not measure; take tasks that generate or choose"
        )

    def apply_chat_template(
        self, chat_history: Sequence[Mapping[str, str]], add_generation_prompt: bool = True
    ) -> str:
        """Return the history as a string that each model puts into its own template later."""
        return write_chat(chat_history, continues=not add_generation_prompt)

    def chat_template(self, chat_template: bool | str = False) -> str:
        """Return the templates of all models, for the harness's record of the run.

        Raises:
            UserError: a template is named, or a model has none.
        """
        if isinstance(chat_template, str):
            raise UserError(
                f"--apply_chat_template names {chat_template!r}, but each model uses its own"
                " template; give the flag without a name"
            )
        for model in self._ensemble.models:
            check_chat(model.tokenizer, model.name)
        templates = {model.name: model.tokenizer.chat_template for model in self._ensemble.models}
        return json.dumps(templates, ensure_ascii=False)

    @property
    def tokenizer_name(self) -> str:
        """Names cached requests: they hold texts and histories, and so suit any models."""
        return "adafuse"

    def get_model_info(self) -> dict[str, Any]:
        """Return what the harness writes into its results about the model."""
        info = {**describe(self._ensemble), "failed_requests": self._failures.total}
        return {"adafuse": {**settings(self._arguments, self._method), **info}}

    def _decoded(self, wanted: Wanted, group: Sequence[Instance]) -> Iterator[tuple[int, Result]]:
        arguments = self._arguments
        return self._ensemble.stream(
            [read_prompt(request.args[0]) for request in group],
            method=arguments.method,
            max_new_tokens=wanted.max_new_tokens,
            max_rounds=arguments.max_rounds,
            stop=wanted.stop,
            batch_size=arguments.batch_size,
            engine=arguments.engine,
            **self._method.options.model_dump(),
        )

    def _take(self, request: Instance, result: Result) -> str:
        """Return what the harness is answered: nothing where decoding failed."""
        if self._trace:
            self._trace.add(_name(request), result)
        if result.error is not None:
            self._failures.add(_name(request), result.error)
            return ""
        self.cache_hook.add_partial("generate_until", request.args, result.text)
        return result.text


def _name(request: Instance) -> str:
    return f"{request.task_name}/{request.doc_id}/{request.idx}"
