# Runs that decode nothing: their rows come from other runs, chosen by the scores of the single models
# on the same rows (an oracle) or on development rows.


rule choose:
    input:
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
    wildcard_constraints:
        run=one_of(plan.chosen_runs),
    params:
        config=layout.config,
        settings=lambda wc: digest.choice_settings(plan.config, wc.run),
    log:
        layout.log("choose", "{benchmark}", "{run}"),
    localrule: True
    conda:
        "../../environment.yml"
    shell:
        "adafuse step choose --config {params.config:q} --benchmark {wildcards.benchmark}"
        " --run {wildcards.run} --out {output:q} 2> {log:q}"
