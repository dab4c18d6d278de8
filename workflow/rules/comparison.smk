# Paired tests of every ensemble against its models alone and the best baseline; words per round.


rule compare_runs:
    input:
        scores=paths.score_paths(plan.config, plan.main_benchmarks, plan.main_runs),
        outcomes=paths.score_paths(
            plan.config, plan.main_benchmarks, plan.main_runs, ".outcomes.parquet"
        ),
    output:
        csv=report(
            f"{results}/tables/comparison.csv",
            caption="../report/comparison.rst",
            category="Tables",
            labels={"table": "paired comparisons"},
        ),
        markdown=f"{results}/tables/comparison.md",
    params:
        config=plan.config_file,
        layout=lambda wc: plan.runs_layout,
    log:
        f"{results}/logs/compare_runs.log",
    localrule: True
    conda:
        "../../environment.yml"
    shell:
        "adafuse step compare-runs {input.scores:q} --config {params.config:q}"
        " --csv {output.csv:q} --markdown {output.markdown:q} 2> {log:q}"


rule words_per_round:
    input:
        traces=expand(rules.merge.output, benchmark=plan.main_benchmarks, run=plan.fused_runs),
    output:
        csv=report(
            f"{results}/tables/words_per_round.csv",
            caption="../report/words.rst",
            category="Tables",
            labels={"table": "words per round"},
        ),
    log:
        f"{results}/logs/words_per_round.log",
    localrule: True
    conda:
        "../../environment.yml"
    shell:
        "adafuse step words-per-round {input.traces:q} --csv {output.csv:q} 2> {log:q}"
