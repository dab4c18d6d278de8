# Wiring only: what the rules share. All logic is in the package `adafuse`.

import shlex
import sys
from pathlib import Path

from adafuse.errors import UserError
from adafuse.workflow import layout as paths, status as outdated
from adafuse.workflow.layout import one_of
from adafuse.workflow.plan import Plan
from adafuse.version import REPORT_VERSION, SCORING_VERSION

try:
    plan = Plan.of(config)
except UserError as error:
    sys.exit(f"error: {error}")
for reason in plan.missing.values():
    print(f"warning: planned without what is missing: {reason}", file=sys.stderr)

if workflow.is_main_process:
    outdated.date_outdated(plan)

results = plan.config.results
table = f"{results}/tables/main.csv"
audits = [f"{results}/tables/audit.csv"] if "published" in plan.protocols else []

# The jobs use the `adafuse` of the environment that runs Snakemake, activated or not.
shell.prefix(f"export PATH={shlex.quote(str(Path(sys.executable).parent))}:\"$PATH\"; ")


wildcard_constraints:
    benchmark=one_of(plan.benchmarks),
    run=one_of(plan.runs),
    shard=r"\d+",
    protocol=one_of(plan.protocols),
    experiment=one_of(plan.config.experiments),


# The jobs read the checked configuration. It is no output of a rule: whatever depends on the file
# would be judged by the file, not by the digest of what the job itself reads of it.
onstart:
    if plan.missing:
        sys.exit(f"error: {next(iter(plan.missing.values()))}")
    plan.store_config()
