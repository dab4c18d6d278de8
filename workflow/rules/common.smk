# Shared by the rules. All logic is in the package `adafuse`.

import json
import shlex
import sys
from pathlib import Path

from adafuse.errors import UserError
from adafuse.workflow import digest
from adafuse.workflow.choose import ballot
from adafuse.workflow.plan import Plan, one_of
from adafuse.workflow.status import date_outdated
from adafuse.version import REPORT_VERSION, SCORING_VERSION

try:
    plan = Plan.of(config)
except UserError as error:
    sys.exit(f"error: {error}")
for reason in plan.missing.values():
    print(f"warning: planned without what is missing: {reason}", file=sys.stderr)

if workflow.is_main_process:
    date_outdated(plan)

layout = plan.layout
main = {
    "protocol": plan.config.protocols,
    "benchmark": plan.config.main_benchmarks,
    "run": plan.config.main_runs,
}
published = "published" in plan.config.protocols

# The jobs use the `adafuse` of the environment that runs Snakemake, activated or not.
shell.prefix(f"export PATH={shlex.quote(str(Path(sys.executable).parent))}:\"$PATH\"; ")


def experiment_files(names):
    return expand(layout.experiment("{name}", "{suffix}"), name=names, suffix=("csv", "svg", "png"))


def resources_of(wc, attempt):
    return plan.resources(wc.benchmark, wc.run, int(wc.shard), attempt)


wildcard_constraints:
    benchmark=one_of(plan.config.benchmarks),
    run=one_of(plan.config.runs),
    shard=r"\d+",
    protocol=one_of(plan.config.protocols),
    experiment=one_of(plan.config.experiments),


# The jobs read the checked configuration. It is not the output of a rule: a job that depended on the
# file would be rerun when the file changes, not when the digest of what the job reads from it does.
onstart:
    if plan.missing:
        sys.exit(f"error: {next(iter(plan.missing.values()))}")
    plan.store_config()
