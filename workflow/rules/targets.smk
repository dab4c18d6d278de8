# Named targets: each experiment (`snakemake figure_6`), and all of them (`paper`, `paper_toy`).

from adafuse.config.experiments import WHOLE_PAPER

tables = [
    rules.compare.output.csv,
    rules.audit.output.csv if published else [],
    rules.datasets.output,
    rules.compare_runs.output,
    rules.words_per_round.output,
]
experiments = experiment_files(plan.config.experiments)
pages = layout.report / "index.html" if "report" in plan.config.targets else []


for name in WHOLE_PAPER:

    rule:
        name:
            name
        input:
            tables,
            experiments,
            # Pages that are planned without the experiments would not contain them.
            pages if "experiments" in plan.config.targets else [],
        localrule: True


for name in plan.config.experiments:

    rule:
        name:
            name
        input:
            experiment_files([name]),
        localrule: True
