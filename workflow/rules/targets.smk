# Named targets: each experiment (`snakemake figure_6`), and all of them (`paper`,
# `paper_toy`).

from adafuse.config.experiments import WHOLE_PAPER
from adafuse.workflow.steps import Job

for name in WHOLE_PAPER:

    rule:
        name:
            name
        input:
            plan.files(plan.paper),
        localrule: True


for name in plan.config.experiments:

    rule:
        name:
            name
        input:
            plan.files([Job.of("experiment", name)]),
        localrule: True
