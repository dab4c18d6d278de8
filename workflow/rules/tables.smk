# The comparison: every run on every benchmark in one table.


rule compare:
    input:
        scores=expand(rules.score.output, benchmark=plan.benchmarks, run=plan.runs),
    output:
        csv=table,
        markdown=f"{results}/tables/main.md",
    params:
        config=plan.config_file,
        layout=lambda wc: plan.table_layout,
    log:
        f"{results}/logs/compare.log",
    localrule: True
    conda:
        "../../environment.yml"
    shell:
        "adafuse step table {input.scores:q} --config {params.config:q} --csv {output.csv:q}"
        " --markdown {output.markdown:q} 2> {log:q}"
