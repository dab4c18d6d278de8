# The report: results/report, a folder that opens anywhere. Each benchmark's examples are a job of
# their own, so that a changed run writes only those again. What `snakemake --report` shows is marked
# by report() where it is made.


report: "../report/workflow.rst"


rule examples:
    input:
        rows=rules.prepare.output,
        traces=lambda wc: paths.trace_paths(plan.config, [wc.benchmark], plan.main_runs),
        outcomes=lambda wc: paths.score_paths(
            plan.config, [wc.benchmark], plan.main_runs, ".outcomes.parquet"
        ),
    output:
        directory(f"{results}/report/data/{{benchmark}}"),
    params:
        config=plan.config_file,
        folder=lambda wc, output: Path(output[0]).parents[1],
        version=REPORT_VERSION,
    log:
        f"{results}/logs/examples/{{benchmark}}.log",
    localrule: True
    conda:
        "../../environment.yml"
    shell:
        "adafuse step examples --config {params.config:q} --benchmark {wildcards.benchmark}"
        " --out {params.folder:q} 2> {log:q}"


rule report:
    input:
        tables,
        expand(rules.examples.output, benchmark=plan.main_benchmarks),
        experiments if "experiments" in plan.config.targets else [],
    output:
        index=f"{results}/report/index.html",
        explorer=f"{results}/report/explorer.html",
    params:
        config=plan.config_file,
        folder=lambda wc, output: Path(output.index).parent,
        layout=lambda wc: plan.report_layout,
        version=REPORT_VERSION,
    log:
        f"{results}/logs/report.log",
    localrule: True
    conda:
        "../../environment.yml"
    shell:
        "adafuse step pages --config {params.config:q} --out {params.folder:q} 2> {log:q}"
