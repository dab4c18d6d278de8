# The pages in results/report. Each benchmark's examples are a separate job, so that a changed run
# rewrites only these. The contents of `snakemake --report` are marked by report() in their rules.


report: "../report/workflow.rst"


rule examples:
    input:
        planned("examples"),
        rows=rules.prepare.output,
        traces=expand(rules.merge.output, run=main["run"], allow_missing=True),
        outcomes=expand(
            rules.score.output.outcomes,
            protocol=main["protocol"],
            run=main["run"],
            allow_missing=True,
        ),
    output:
        directory(layout.report_data("{benchmark}")),
    log:
        layout.log("examples", "{benchmark}"),
    localrule: True
    conda:
        "../../environment.yml"
    envmodules:
        *plan.config.envmodules,
    params:
        config=layout.config,
        digest=key_of("examples"),
    shell:
        "adafuse step examples --config {params.config:q} --benchmark {wildcards.benchmark}"
        " --out {output:q} --digest {params.digest} 2> {log:q}"


rule report:
    input:
        planned("report"),
        tables,
        expand(rules.examples.output, benchmark=plan.config.main_benchmarks),
        experiments if "experiments" in plan.config.targets else [],
    output:
        index=layout.report / "index.html",
        explorer=layout.report / "explorer.html",
    log:
        layout.log("report"),
    localrule: True
    conda:
        "../../environment.yml"
    envmodules:
        *plan.config.envmodules,
    params:
        config=layout.config,
        digest=key_of("report"),
    shell:
        "adafuse step pages --config {params.config:q} --index {output.index:q}"
        " --explorer {output.explorer:q} --digest {params.digest} 2> {log:q}"
