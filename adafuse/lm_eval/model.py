"""The model that lm-evaluation-harness runs as `--model adafuse`."""

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch
from lm_eval import utils
from lm_eval.api.instance import Instance
from lm_eval.api.model import LM
from tqdm import tqdm

from adafuse.ensemble import Ensemble
from adafuse.errors import UserError
from adafuse.lm_eval.arguments import read_arguments
from adafuse.lm_eval.requests import (
    GenerationLimits,
    check_failures,
    fuse,
    read_generation,
    read_pair,
    read_prompt,
    write_chat,
)
from adafuse.records.result import Prompt, Result
from adafuse.storage.files import check_writable
from adafuse.storage.parquet import as_table
from adafuse.storage.traces import PROMPT_FIELDS, prompt_row, write_trace
from adafuse.tokenization.prompts import check_chat
from adafuse.tokenization.thoughts import check_no_thoughts
from adafuse.version import versions


class Trace:
    """Keeps a row per request, named task/document/number, and writes them all.

    Rows are kept as columns, which take far less memory than the objects of their rounds.
    """

    def __init__(self, path: Path, settings: dict[str, Any], plugins: dict[str, str]) -> None:
        check_writable(path)
        self._path, self._settings, self._plugins = path, settings, plugins
        self._rows: dict[str, pa.Table] = {}
        self._written: dict[str, None] = {}

    def add(self, name: str, prompt: Prompt, result: Result) -> None:
        self._rows[name] = as_table(PROMPT_FIELDS, [prompt_row(name, prompt, result)])

    def write(self, names: Iterable[str]) -> None:
        """Write the rows of these names in this order, after those that were written before."""
        self._written |= dict.fromkeys(names)
        rows = [as_table(PROMPT_FIELDS, []), *(self._rows[name] for name in self._written)]
        table = pa.concat_tables(rows).combine_chunks()
        write_trace(self._path, table, self._settings, self._plugins)


DEFAULT_DEVICE = "cuda:0"
"""What the harness passes where no device is named."""


class AdaFuseLM(LM):  # type: ignore[misc]  # the harness has no types
    """Answers the harness's requests with all models together (docs/lm-eval.md)."""

    def __init__(self, **given: Any) -> None:
        super().__init__()
        self._arguments, self._method = arguments, method = read_arguments(given)
        # No option of a method is called like an argument.
        self._settings = {
            **arguments.model_dump(mode="json"),
            **method.options.model_dump(mode="json"),
        }
        self._trace = (
            Trace(Path(arguments.trace), self._settings, method.plugins)
            if arguments.trace
            else None
        )
        self._failed = 0
        self._ensemble = Ensemble.from_pretrained(
            arguments.models,
            weights=arguments.weights,
            threads=arguments.threads,
            **arguments.loading,
        )

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
        return cls.create_from_arg_obj(
            utils.simple_parse_args_string(arg_string), additional_config
        )

    def generate_until(self, requests: Sequence[Instance]) -> list[str]:
        """Continue every prompt greedily; requests that ask for the same are decoded together."""
        distinct = {id(request): request for request in requests}  # repeats are one object
        default, seed = self._arguments.max_gen_toks, getattr(self._method.options, "seed", None)
        groups: dict[GenerationLimits, list[Instance]] = {}
        for request in distinct.values():
            limits = read_generation(request.args[1], default, seed)
            groups.setdefault(limits, []).append(request)
        texts: dict[int, str] = {}
        errors: dict[str, str] = {}
        with tqdm(total=len(distinct), unit="prompt", disable=None) as bar:
            for limits, group in groups.items():
                for number, result in self._stream(limits, group):
                    request = group[number]
                    text = limits.cut(result.answer) if result.error is None else ""
                    texts[id(request)] = text
                    if self._trace:
                        self._trace.add(_name(request), read_prompt(request.args[0]), result)
                    if result.error is None:
                        self.cache_hook.add_partial("generate_until", request.args, text)
                    else:
                        errors[_name(request)] = result.error
                    bar.update()
        if self._trace:
            self._trace.write(map(_name, distinct.values()))
        self._check(errors, "generate_until", len(distinct))
        return [texts[id(request)] for request in requests]

    def loglikelihood(self, requests: Sequence[Instance]) -> list[tuple[float, bool]]:
        """Return the weighted mean of the models' log-likelihoods, and if all agree greedily."""
        pairs = [read_pair(*request.args[:2]) for request in requests]
        for prompt, _ in pairs[:1]:
            check_no_thoughts(self._ensemble.models, prompt)
        stream = self._ensemble.loglikelihoods(
            pairs, batch_size=self._arguments.batch_size, engine=self._arguments.engine
        )
        stream = self._ensemble.while_served(stream, _RUN_AGAIN)
        scores: dict[int, tuple[float, bool]] = {}
        errors: dict[str, str] = {}
        for number, likelihood in tqdm(stream, total=len(pairs), unit="text", disable=None):
            scores[number] = fuse(likelihood, self._ensemble.weights)
            if likelihood.error is None:
                self.cache_hook.add_partial("loglikelihood", requests[number].args, scores[number])
            else:
                errors[_name(requests[number])] = likelihood.error
        for choices in _by_document(requests):
            if len(choices) > 1 and all(scores[number][0] == -math.inf for number in choices):
                for number in choices:
                    errors.setdefault(_name(requests[number]), NO_CHOICE)
        self._check(errors, "loglikelihood", len(pairs))
        return [scores[number] for number in range(len(pairs))]

    def loglikelihood_rolling(self, requests: Sequence[Instance]) -> list[float]:
        """Refuse: models cut a long text into windows at different places."""
        raise UserError(
            f"task {requests[0].task_name!r} asks for the perplexity of whole texts, which"
            " --model adafuse does not measure; use tasks that generate or choose"
        )

    def apply_chat_template(
        self, chat_history: Sequence[Mapping[str, str]], add_generation_prompt: bool = True
    ) -> str:
        """Return the history as a string that each model puts into its own template later."""
        return write_chat(chat_history, continues=not add_generation_prompt)

    def chat_template(self, chat_template: bool | str = False) -> str:
        """Return the templates of all models, for the harness's record of the run."""
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
        loaded = [{"name": model.name, **model.description} for model in self._ensemble.models]
        return {
            "adafuse": {
                **self._settings,
                "loaded": loaded,
                "weights": list(self._ensemble.weights),
                "versions": versions(),
                "failed_requests": self._failed,
            }
        }

    def _stream(
        self, limits: GenerationLimits, group: Sequence[Instance]
    ) -> Iterator[tuple[int, Result]]:
        stream = self._ensemble.stream(
            [read_prompt(request.args[0]) for request in group],
            **asdict(limits),
            **self._arguments.model_dump(include={"method", "max_rounds", "batch_size", "engine"}),
            **self._method.options.model_dump(),
        )
        return self._ensemble.while_served(stream, _RUN_AGAIN)

    def _check(self, errors: Mapping[str, str], kind: str, requests: int) -> None:
        self._failed += len(errors)
        check_failures(errors, kind, requests, self._arguments.max_error_share)


_RUN_AGAIN = "run again (what --use_cache keeps is not decoded again)"
NO_CHOICE = "every choice has probability 0 under one of the models or another"


def _by_document(requests: Sequence[Instance]) -> Iterable[list[int]]:
    """Return the numbers of the requests of each document, such as its choices."""
    numbers = defaultdict[tuple[Any, Any], list[int]](list)
    for number, request in enumerate(requests):
        numbers[request.task_name, request.doc_id].append(number)
    return numbers.values()


def _name(request: Instance) -> str:
    return f"{request.task_name}/{request.doc_id}/{request.idx}"
