# Scores under each protocol: one JSON file per benchmark and run, and the outcome of each example.


rule score:
    input:
        rows=rules.prepare.output,
        trace=rules.merge.output,
    output:
        score=layout.score("{protocol}", "{benchmark}", "{run}"),
        outcomes=layout.outcomes("{protocol}", "{benchmark}", "{run}"),
    params:
        scorer=lambda wc: plan.config.benchmarks[wc.benchmark].scorer,
        version=SCORING_VERSION,
    log:
        layout.log("score", "{protocol}", "{benchmark}", "{run}"),
    localrule: True
    conda:
        "../../environment.yml"
    shell:
        "adafuse step score --rows {input.rows:q} --trace {input.trace:q} --scorer {params.scorer}"
        " --protocol {wildcards.protocol} --benchmark {wildcards.benchmark} --run {wildcards.run}"
        " --out {output.score:q} --outcomes {output.outcomes:q} 2> {log:q}"
