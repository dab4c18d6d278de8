# Statistics of the benchmarks, with the figures of the paper's appendix C.


rule datasets:
    input:
        planned("datasets"),
    output:
        csv=report(
            layout.table("datasets.csv"),
            caption="../report/datasets.rst",
            category="Tables",
            labels={"table": "data sets"},
        ),
        markdown=layout.table("datasets.md"),
    log:
        layout.log("datasets"),
    localrule: True
    conda:
        "../../environment.yml"
    envmodules:
        *plan.config.envmodules,
    params:
        config=layout.config,
        digest=key_of("datasets"),
    shell:
        "adafuse step datasets --config {params.config:q} --csv {output.csv:q}"
        " --markdown {output.markdown:q} --digest {params.digest} 2> {log:q}"
