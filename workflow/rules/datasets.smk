# Statistics of the benchmarks, with the figures of the paper's appendix C.


rule datasets:
    input:
        lambda wc: ancient([path for name in plan.config.main_benchmarks for path in plan.source(name)]),
    output:
        csv=report(
            layout.table("datasets.csv"),
            caption="../report/datasets.rst",
            category="Tables",
            labels={"table": "data sets"},
        ),
        markdown=layout.table("datasets.md"),
    params:
        config=layout.config,
        settings=lambda wc: plan.datasets_settings(),
    log:
        layout.log("datasets"),
    localrule: True
    conda:
        "../../environment.yml"
    shell:
        "adafuse step datasets --config {params.config:q} --csv {output.csv:q}"
        " --markdown {output.markdown:q} 2> {log:q}"
