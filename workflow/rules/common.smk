# Shared by the rules. All logic is in the package `adafuse`.

import shlex
import sys
from pathlib import Path

from snakemake.settings.enums import Quietness
from snakemake.settings.types import DeploymentMethod

from adafuse.config.reading import as_written
from adafuse.errors import UserError
from adafuse.workflow.choose import ballot
from adafuse.workflow.plan import Plan, one_of

try:
    config = as_written(config, workflow)
    plan = Plan.of(config)
except UserError as error:
    sys.exit(f"error: {error}")
for reason in plan.missing.values():
    print(f"warning: planned without what is missing: {reason}", file=sys.stderr)
for warning in plan.warnings if workflow.is_main_process else ():
    print(f"warning: {warning}", file=sys.stderr)

layout = plan.layout
main = {
    "protocol": plan.config.protocols,
    "benchmark": plan.config.main_benchmarks,
    "run": plan.config.main_runs,
}
published = "published" in plan.config.protocols

# A prefix takes the place of Snakemake's, which makes a step fail where any of its commands does. Jobs use
# the `adafuse` of the environment that runs Snakemake, activated or not, unless they have one of their own.
deployed = workflow.deployment_settings.deployment_method
exports = getattr(workflow, "adafuse_exports", {}) | plan.exported
workflow.adafuse_exports = exports  # of all modules that use this workflow
prefix = "set -euo pipefail; " + "".join(f"export {name}={value}; " for name, value in exports.items())
if not deployed & {DeploymentMethod.CONDA, DeploymentMethod.APPTAINER}:
    prefix += f'export PATH={shlex.quote(str(Path(sys.executable).parent))}:"$PATH"; '
shell.prefix(prefix)
if DeploymentMethod.APPTAINER in deployed and plan.config.container is None:
    sys.exit("error: --sdm apptainer needs an image; name it as `container` (docs/hpc.md)")
if plan.config.container is not None:

    container: plan.config.container


# Snakemake promises that -n --quiet prints a summary, but 9.27 hides that, too.
if workflow.output_settings.dryrun and workflow.output_settings.quiet:
    workflow.output_settings.quiet.discard(Quietness.PROGRESS)


def planned(step):
    """Return an input function that adds no file: it has a job of rule `step` run whose outputs were
    made from something else than is planned. Snakemake's own records may be lost, or of other files.
    """

    def force(wc):
        outputs = [file.apply_wildcards(wc) for file in getattr(rules, step).output]
        if workflow.is_main_process and not plan.is_fresh(step, map(Path, outputs), **dict(wc.items())):
            workflow.dag.forcefiles.update(outputs)
        return []

    return force


def key_of(step):
    """Return a parameter function: the digest of everything that a job of rule `step` depends on."""
    return lambda wc: plan.key(step, **dict(wc.items()))


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
def start(log, others=workflow._onstart):
    others(log)
    try:
        plan.start({Path(file) for job in workflow.dag.jobs for file in job.output})
    except UserError as error:
        sys.exit(f"error: {error}")


def with_start(handler, register=workflow.onstart):
    register(lambda log: (start(log), handler(log)))


# Not `onstart:`, which Snakemake ignores in a module, as which this workflow may be used. A later `onstart:`
# would replace it, so it is run before that.
workflow._onstart = start
workflow.onstart = with_start
