# The comparison: every run on every benchmark in one table per protocol; what only `published`
# accepts in another.


rule compare:
    input:
        scores=paths.score_paths(plan.config, plan.main_benchmarks, plan.main_runs),
    output:
        csv=report(
            table,
            caption="../report/main.rst",
            category="Tables",
            labels={"table": "main, strict"},
        ),
        markdown=f"{results}/tables/main.md",
        published=[f"{results}/tables/main_published.csv"] if audits else [],
    params:
        config=plan.config_file,
        layout=lambda wc: plan.table_layout,
        published=lambda wc, output: f"--published-csv '{output.published}'" if audits else "",
    log:
        f"{results}/logs/compare.log",
    localrule: True
    conda:
        "../../environment.yml"
    shell:
        "adafuse step table {input.scores:q} --config {params.config:q} --csv {output.csv:q}"
        " --markdown {output.markdown:q} {params.published} 2> {log:q}"


rule audit:
    input:
        paths.score_paths(
            plan.config, plan.main_benchmarks, plan.main_runs, ".outcomes.parquet"
        ),
    output:
        csv=report(
            f"{results}/tables/audit.csv",
            caption="../report/audit.rst",
            category="Tables",
            labels={"table": "audit"},
        ),
        markdown=f"{results}/tables/audit.md",
    params:
        config=plan.config_file,
    log:
        f"{results}/logs/audit.log",
    localrule: True
    conda:
        "../../environment.yml"
    shell:
        "adafuse step audit --config {params.config:q} --csv {output.csv:q}"
        " --markdown {output.markdown:q} 2> {log:q}"
