# Scores: one JSON file per benchmark and run.


rule score:
    input:
        rows=rules.prepare.output,
        trace=rules.merge.output,
    output:
        f"{results}/scores/{{benchmark}}/{{run}}.json",
    params:
        metric=lambda wc: plan.config.benchmarks[wc.benchmark].metric,
    log:
        f"{results}/logs/score/{{benchmark}}/{{run}}.log",
    localrule: True
    conda:
        "../../environment.yml"
    shell:
        "adafuse step score --rows {input.rows:q} --trace {input.trace:q} --metric {params.metric}"
        " --benchmark {wildcards.benchmark} --run {wildcards.run} --out {output:q} 2> {log:q}"
