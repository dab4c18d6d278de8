# The pages in results/report. Each benchmark's examples are a separate job, so that a changed run
# rewrites only these. The contents of `snakemake --report` are marked by report() in their rules.


report: "../report/workflow.rst"


rule examples:
    input:
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
    params:
        config=layout.config,
        folder=layout.report,
        version=REPORT_VERSION,
    log:
        layout.log("examples", "{benchmark}"),
    localrule: True
    conda:
        "../../environment.yml"
    shell:
        "adafuse step examples --config {params.config:q} --benchmark {wildcards.benchmark}"
        " --out {params.folder:q} 2> {log:q}"


rule report:
    input:
        tables,
        expand(rules.examples.output, benchmark=plan.config.main_benchmarks),
        experiments if "experiments" in plan.config.targets else [],
    output:
        index=layout.report / "index.html",
        explorer=layout.report / "explorer.html",
    params:
        config=layout.config,
        folder=layout.report,
        settings=lambda wc: json.dumps(digest.reported_config(plan.config), sort_keys=True),
        version=REPORT_VERSION,
    log:
        layout.log("report"),
    localrule: True
    conda:
        "../../environment.yml"
    shell:
        "adafuse step pages --config {params.config:q} --out {params.folder:q} 2> {log:q}"
