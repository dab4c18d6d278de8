# Every run on every benchmark in one table per protocol, and an audit of the answers that only
# `published` accepts.


rule compare:
    input:
        scores=expand(rules.score.output.score, **main),
    output:
        csv=report(
            layout.table("main.csv"),
            caption="../report/main.rst",
            category="Tables",
            labels={"table": "main, strict"},
        ),
        markdown=layout.table("main.md"),
        published=[layout.table("main_published.csv")] if published else [],
    params:
        config=layout.config,
        settings=lambda wc: digest.table_settings(plan.config),
        published=lambda wc, output: f"--published-csv '{output.published}'" if published else "",
    log:
        layout.log("compare"),
    localrule: True
    conda:
        "../../environment.yml"
    shell:
        "adafuse step table {input.scores:q} --config {params.config:q} --csv {output.csv:q}"
        " --markdown {output.markdown:q} {params.published} 2> {log:q}"


rule audit:
    input:
        expand(rules.score.output.outcomes, **main),
    output:
        csv=report(
            layout.table("audit.csv"),
            caption="../report/audit.rst",
            category="Tables",
            labels={"table": "audit"},
        ),
        markdown=layout.table("audit.md"),
    params:
        config=layout.config,
    log:
        layout.log("audit"),
    localrule: True
    conda:
        "../../environment.yml"
    shell:
        "adafuse step audit --config {params.config:q} --csv {output.csv:q}"
        " --markdown {output.markdown:q} 2> {log:q}"
