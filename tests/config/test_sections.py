"""Sections of the configuration: what they refuse, and what holds without a value."""

import inspect
from importlib import import_module
from pkgutil import iter_modules

import pytest
from pydantic import ValidationError

import adafuse.config
from adafuse.config.benchmarks import SampleConfig
from adafuse.config.config import Config
from adafuse.config.experiments import MainConfig
from adafuse.config.runs import DecodeConfig, ModelConfig, RunConfig
from adafuse.errors import UserError
from adafuse.options import Section

ALL = [
    each
    for module in iter_modules(adafuse.config.__path__)
    for _, each in inspect.getmembers(import_module(f"adafuse.config.{module.name}"))
    if inspect.isclass(each) and issubclass(each, Section)
]


@pytest.mark.parametrize("section", dict.fromkeys([Config, *ALL]), ids=lambda each: each.__name__)
def test_a_section_refuses_keys_that_it_does_not_have(section: type[Section]) -> None:
    with pytest.raises((ValidationError, UserError), match="unknown key 'no_such_key'; known"):
        section.model_validate({"no_such_key": 1})


def test_a_section_cannot_be_changed() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        DecodeConfig().gpu = 2  # type: ignore[misc]


@pytest.mark.parametrize(
    ("section", "values"),
    [
        (ModelConfig, {"path": ""}),
        (ModelConfig, {"path": "x", "quantization": "int2"}),
        (RunConfig, {"method": "single", "models": []}),
        (SampleConfig, {"size": 0}),
        (DecodeConfig, {"max_error_share": 1.5}),
        (DecodeConfig, {"batch_size": "all"}),
        (MainConfig, {"margin": "012"}),
        (MainConfig, {"margin": True}),
    ],
)
def test_a_section_refuses_values_out_of_range(section: type[Section], values: dict) -> None:
    with pytest.raises(ValidationError):
        section.model_validate(values)


def test_two_runs_never_share_their_options() -> None:
    one, other = (RunConfig(method="single", models=("a",)) for _ in range(2))
    assert one.options == {} and one.options is not other.options
