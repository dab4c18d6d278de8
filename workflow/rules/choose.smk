# Runs that decode nothing: their rows come from other runs, chosen by the scores of the single models
# on the same rows (an oracle) or on development rows.


rule choose:
    input:
        planned("choose"),
        traces=lambda wc: [
            layout.trace(wc.benchmark, run) for run in ballot(plan.config, wc.benchmark, wc.run).candidates
        ],
        evidence=lambda wc: [
            path("strict", *cell)
            for cell in ballot(plan.config, wc.benchmark, wc.run).evidence
            for path in (layout.score, layout.outcomes)
        ],
    output:
        layout.trace("{benchmark}", "{run}"),
    log:
        layout.log("choose", "{benchmark}", "{run}"),
    wildcard_constraints:
        run=one_of(plan.chosen_runs),
    localrule: True
    conda:
        "../../environment.yml"
    envmodules:
        *plan.config.envmodules,
    params:
        config=layout.config,
        digest=key_of("choose"),
    shell:
        "adafuse step choose --config {params.config:q} --benchmark {wildcards.benchmark}"
        " --run {wildcards.run} --out {output:q} --digest {params.digest} 2> {log:q}"
