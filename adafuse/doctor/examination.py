"""Everything that the doctor looks at, put together."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeVar

from adafuse.doctor.installation import look_around
from adafuse.doctor.memory import Batch, device_loads
from adafuse.doctor.memory import wrong_with as memory_problems
from adafuse.doctor.model import examine
from adafuse.doctor.overlap import overlaps
from adafuse.doctor.overlap import wrong_with as overlap_problems
from adafuse.doctor.records import Finding, ModelFacts, Report
from adafuse.errors import UserError
from adafuse.models.devices import Placement
from adafuse.models.sources import ModelSource
from adafuse.text.surfaces import Surfaces

T = TypeVar("T")
Sources = Callable[[], list[ModelSource]]


def examination(wanted: Sources, anyway: Sources, batch: Batch) -> Report:
    """Look at the installation, and at some models without loading their weights.

    Args:
        wanted: returns where the models come from; what it refuses becomes a problem.
        anyway: the same as far as any machine can have it, for when it refuses something; nothing
            is said of memory then.
        batch: what is to be decoded at a time.
    """
    installation, findings = look_around()
    models: list[tuple[ModelFacts, Placement]] = []
    surfaces: dict[str, Surfaces] = {}
    chosen = _told(findings, wanted)
    for source in (_told([], anyway) or []) if chosen is None else chosen:
        if (found := _told(findings, partial(examine, source))) is None:
            continue
        facts, exact, wrong = found
        models.append((facts, source.placement))
        findings += [*wrong, *_too_long(facts, batch)]
        if exact is not None:
            surfaces[facts.name] = exact
    loads = [] if chosen is None else device_loads(models, batch)
    common = overlaps(surfaces)
    findings += [*overlap_problems(common), *memory_problems(loads, models)]
    return Report(
        installation,
        tuple(facts for facts, _ in models),
        tuple(common),
        tuple(loads),
        tuple(findings),
    )


def _told(findings: list[Finding], call: Callable[[], T]) -> T | None:
    """Return what a call returns; what it refuses becomes a problem."""
    try:
        return call()
    except UserError as error:
        findings.append(Finding(True, str(error)))
        return None


def _too_long(facts: ModelFacts, batch: Batch) -> Iterator[Finding]:
    longest = batch.prompt_tokens + batch.max_new_tokens
    if facts.context is not None and longest > facts.context:
        yield Finding(
            True,
            f"{batch.prompt_tokens} tokens of a prompt and {batch.max_new_tokens} new ones are more"
            f" than the {facts.context} positions of model {facts.name!r}; lower --max-new-tokens"
            " or shorten the prompts",
        )
