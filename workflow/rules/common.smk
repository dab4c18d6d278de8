# Shared by the rules. All logic is in the package `adafuse`: what each step writes, reads and depends
# on stands in adafuse/workflow/steps.py.

import shlex
import sys

from adafuse.errors import UserError
from adafuse.workflow.plan import Plan
from adafuse.workflow.snakemake import (
    PREFETCH,
    as_written,
    group_of,
    inputs_of,
    print_summary,
    print_warnings,
    set_up_group,
    shell_prefix,
    srun,
    start_with,
)
from adafuse.workflow.steps import STEPS

try:
    config = as_written(config, workflow)
    plan = Plan.of(config, fetches=PREFETCH not in sys.argv)
    shell.prefix(shell_prefix(workflow, plan))
except UserError as error:
    sys.exit(f"error: {error}")
print_warnings(workflow, plan)
print_summary(workflow)
start_with(workflow, plan)
set_up_group(workflow, plan)

if plan.config.container is not None:

    container: plan.config.container


def patterns(step):
    """Return the wildcards of a step, as they stand in the paths of its rule."""
    return [f"{{{name}}}" for name in STEPS[step].wildcards]


def inputs(step):
    return inputs_of(workflow, plan, step)


def outputs(step):
    """Return the outputs of a step; the first one is shown by `snakemake --report`."""
    paths = STEPS[step].outputs(plan.layout, *patterns(step))
    (name, path), *others = paths.items()
    if step == "examples":
        path = directory(path)
    elif STEPS[step].title and step != "report":
        figure = {"category": "Figures", "labels": {"figure": "{experiment}"}}
        table = {"category": "Tables", "labels": {"table": STEPS[step].title}}
        about = figure if step == "experiment" else table
        path = report(path, caption=f"../report/{step}.rst", **about)
    return {name: path, **dict(others)}


def log_of(step):
    return plan.layout.log(step, *patterns(step))


def command(step):
    return lambda wc: shlex.join(plan.command(plan.job(step, wc)))


def is_timed(wc):
    return plan.config.benchmarks[wc.benchmark].timed


def needed(wc, attempt):
    return plan.resources(wc.benchmark, wc.run, int(wc.shard), attempt)
