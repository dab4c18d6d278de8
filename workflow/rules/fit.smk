# Gates: what a run with `fusion: learned` and `gate: development` learns from development rows.


rule fit:
    input:
        planned("fit"),
        rows=rules.prepare.output,
    output:
        layout.gate("{benchmark}", "{run}"),
    log:
        layout.log("fit", "{benchmark}", "{run}"),
    wildcard_constraints:
        run=one_of(plan.decoded_runs),
    conda:
        "../../environment.yml"
    envmodules:
        *plan.config.envmodules,
    resources:
        gpu=lambda wc, attempt: plan.fit_resources(wc.benchmark, wc.run, attempt).gpu,
        mem_mb=lambda wc, attempt: plan.fit_resources(wc.benchmark, wc.run, attempt).mem_mb,
        runtime=lambda wc, attempt: plan.fit_resources(wc.benchmark, wc.run, attempt).runtime,
        nodes=1,  # as in `decode`
    params:
        config=layout.config,
        digest=key_of("fit"),
    shell:
        "OMP_NUM_THREADS=1 adafuse step fit --config {params.config:q} --benchmark {wildcards.benchmark}"
        " --run {wildcards.run} --rows {input.rows:q} --out {output:q} --digest {params.digest} 2> {log:q}"
