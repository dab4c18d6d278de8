# Scores under each protocol: one JSON file per benchmark and run, and the outcome of each example.


rule score:
    input:
        rows=rules.prepare.output,
        trace=rules.merge.output,
    output:
        score=f"{results}/scores/{{protocol}}/{{benchmark}}/{{run}}.json",
        outcomes=f"{results}/scores/{{protocol}}/{{benchmark}}/{{run}}.outcomes.parquet",
    params:
        scorer=lambda wc: plan.config.benchmarks[wc.benchmark].scorer,
        version=SCORING_VERSION,
    log:
        f"{results}/logs/score/{{protocol}}/{{benchmark}}/{{run}}.log",
    localrule: True
    conda:
        "../../environment.yml"
    shell:
        "adafuse step score --rows {input.rows:q} --trace {input.trace:q} --scorer {params.scorer}"
        " --protocol {wildcards.protocol} --benchmark {wildcards.benchmark} --run {wildcards.run}"
        " --out {output.score:q} --outcomes {output.outcomes:q} 2> {log:q}"
