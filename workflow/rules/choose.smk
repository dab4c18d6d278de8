# Runs that decode nothing: their rows are taken from other runs, chosen by the scores of the models
# alone on the same rows (an oracle) or on development rows.


rule choose:
    input:
        traces=lambda wc: expand(
            f"{results}/traces/{{benchmark}}/{{run}}.parquet",
            benchmark=wc.benchmark,
            run=plan.ballot(wc.benchmark, wc.run).candidates,
        ),
        evidence=lambda wc: [
            f"{results}/scores/strict/{benchmark}/{run}{suffix}"
            for benchmark, run in plan.ballot(wc.benchmark, wc.run).evidence
            for suffix in (".json", ".outcomes.parquet")
        ],
    output:
        f"{results}/traces/{{benchmark}}/{{run}}.parquet",
    wildcard_constraints:
        run=one_of(plan.chosen_runs),
    params:
        config=plan.config_file,
        layout=lambda wc: plan.choice_layout(wc.run),
    log:
        f"{results}/logs/choose/{{benchmark}}/{{run}}.log",
    localrule: True
    conda:
        "../../environment.yml"
    shell:
        "adafuse step choose --config {params.config:q} --benchmark {wildcards.benchmark}"
        " --run {wildcards.run} --out {output:q} 2> {log:q}"
