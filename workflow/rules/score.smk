# Scores under each protocol: one JSON file per benchmark and run, and the outcome of each example.


rule score:
    input:
        planned("score"),
        rows=rules.prepare.output,
        trace=rules.merge.output,
    output:
        score=layout.score("{protocol}", "{benchmark}", "{run}"),
        outcomes=layout.outcomes("{protocol}", "{benchmark}", "{run}"),
    log:
        layout.log("score", "{protocol}", "{benchmark}", "{run}"),
    localrule: True
    conda:
        "../../environment.yml"
    envmodules:
        *plan.config.envmodules,
    params:
        scorer=lambda wc: plan.config.benchmarks[wc.benchmark].scorer,
        within=lambda wc: "--within-budget" * plan.config.benchmarks[wc.benchmark].within_budget,
        digest=key_of("score"),
    shell:
        "adafuse step score --rows {input.rows:q} --trace {input.trace:q} --scorer {params.scorer}"
        " --protocol {wildcards.protocol} --benchmark {wildcards.benchmark} --run {wildcards.run}"
        " {params.within} --out {output.score:q} --outcomes {output.outcomes:q} --digest {params.digest} 2> {log:q}"
