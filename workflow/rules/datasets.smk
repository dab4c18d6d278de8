# What the benchmarks consist of, beside the figures of the paper's appendix C.


rule datasets:
    input:
        lambda wc: ancient([path for name in plan.main_benchmarks for path in plan.source(name)]),
    output:
        csv=report(
            f"{results}/tables/datasets.csv",
            caption="../report/datasets.rst",
            category="Tables",
            labels={"table": "data sets"},
        ),
        markdown=f"{results}/tables/datasets.md",
    params:
        config=plan.config_file,
        layout=lambda wc: plan.datasets_layout,
    log:
        f"{results}/logs/datasets.log",
    localrule: True
    conda:
        "../../environment.yml"
    shell:
        "adafuse step datasets --config {params.config:q} --csv {output.csv:q}"
        " --markdown {output.markdown:q} 2> {log:q}"
