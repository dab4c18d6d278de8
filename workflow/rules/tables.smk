# Every run on every benchmark in one table per protocol, and an audit of the answers that only
# `published` accepts.


rule compare:
    input:
        planned("compare"),
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
    log:
        layout.log("compare"),
    localrule: True
    conda:
        "../../environment.yml"
    envmodules:
        *plan.config.envmodules,
    params:
        config=layout.config,
        digest=key_of("compare"),
        published=lambda wc, output: [f"--published-csv={file}" for file in output.get("published", [])],
    shell:
        "adafuse step table {input.scores:q} --config {params.config:q} --csv {output.csv:q}"
        " --markdown {output.markdown:q} {params.published:q} --digest {params.digest} 2> {log:q}"


rule audit:
    input:
        planned("audit"),
        expand(rules.score.output.outcomes, **main),
    output:
        csv=report(
            layout.table("audit.csv"),
            caption="../report/audit.rst",
            category="Tables",
            labels={"table": "audit"},
        ),
        markdown=layout.table("audit.md"),
    log:
        layout.log("audit"),
    localrule: True
    conda:
        "../../environment.yml"
    envmodules:
        *plan.config.envmodules,
    params:
        config=layout.config,
        digest=key_of("audit"),
    shell:
        "adafuse step audit --config {params.config:q} --csv {output.csv:q}"
        " --markdown {output.markdown:q} --digest {params.digest} 2> {log:q}"
