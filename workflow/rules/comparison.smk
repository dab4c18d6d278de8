# Paired tests of every ensemble against its single models and the best baseline; words per round.


rule compare_runs:
    input:
        planned("compare_runs"),
        scores=expand(rules.score.output.score, **main),
        outcomes=expand(rules.score.output.outcomes, **main),
    output:
        csv=report(
            layout.table("comparison.csv"),
            caption="../report/comparison.rst",
            category="Tables",
            labels={"table": "paired comparisons"},
        ),
        markdown=layout.table("comparison.md"),
    log:
        layout.log("compare_runs"),
    localrule: True
    conda:
        "../../environment.yml"
    envmodules:
        *plan.config.envmodules,
    params:
        config=layout.config,
        digest=key_of("compare_runs"),
    shell:
        "adafuse step compare-runs {input.scores:q} --config {params.config:q}"
        " --csv {output.csv:q} --markdown {output.markdown:q} --digest {params.digest} 2> {log:q}"


rule words_per_round:
    input:
        planned("words_per_round"),
        traces=expand(rules.merge.output, benchmark=plan.config.main_benchmarks, run=plan.fused_runs),
    output:
        csv=report(
            layout.table("words_per_round.csv"),
            caption="../report/words.rst",
            category="Tables",
            labels={"table": "words per round"},
        ),
    log:
        layout.log("words_per_round"),
    localrule: True
    conda:
        "../../environment.yml"
    envmodules:
        *plan.config.envmodules,
    params:
        digest=key_of("words_per_round"),
    shell:
        "adafuse step words-per-round {input.traces:q} --csv {output.csv:q} --digest {params.digest}"
        " 2> {log:q}"
