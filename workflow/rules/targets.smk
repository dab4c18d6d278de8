# What can be asked for by name: each experiment (`snakemake figure_6`), and `paper`.

from adafuse.config.experiments import WHOLE_PAPER

tables = [
    table,
    audits,
    rules.datasets.output,
    rules.compare_runs.output,
    rules.words_per_round.output,
]
experiments = paths.experiment_outputs(plan.config, plan.config.experiments)
pages = f"{results}/report/index.html" if "report" in plan.config.targets else []


for name in WHOLE_PAPER:

    rule:
        name:
            name
        localrule: True
        input:
            tables,
            experiments,
            # One that is planned without the experiments would not show them.
            pages if "experiments" in plan.config.targets else [],


for name in plan.config.experiments:

    rule:
        name:
            name
        localrule: True
        input:
            paths.experiment_outputs(plan.config, [name]),
