# What can be asked for by name: each experiment (`snakemake figure_6`), and `paper`.

tables = [
    table,
    audits,
    rules.datasets.output,
    rules.compare_runs.output,
    rules.words_per_round.output,
]
experiments = paths.experiment_outputs(plan.config, plan.config.experiments)


rule paper:
    localrule: True
    input:
        tables,
        experiments,


# The same under the name that the toy configuration's documentation uses.
rule paper_toy:
    localrule: True
    input:
        tables,
        experiments,


for name in plan.config.experiments:

    rule:
        name:
            name
        localrule: True
        input:
            paths.experiment_outputs(plan.config, [name]),
