# Prompts with answers for scoring, and prompts in shards for decoding. Both are made from the source,
# which is ancient(): a job is rerun when the digest of its rows has changed, not when a file was
# touched. (A shard made from the output of `prepare` would be rerun with it; with ancient(), never,
# because Snakemake ignores the parameters of a job whose input is remade.)


rule prepare:
    input:
        lambda wc: ancient(plan.source(wc.benchmark)),
    output:
        layout.rows("{benchmark}"),
    params:
        config=layout.config,
        digest=lambda wc: digest.prepared_digest(plan.prepared(wc.benchmark)),
    log:
        layout.log("prepare", "{benchmark}"),
    localrule: True
    conda:
        "../../environment.yml"
    shell:
        "adafuse step prepare --config {params.config:q} --benchmark {wildcards.benchmark}"
        " --out {output:q} 2> {log:q}"


rule shard:
    input:
        lambda wc: ancient(plan.source(wc.benchmark)),
    output:
        layout.shard_rows("{benchmark}", "{shard}"),
    params:
        config=layout.config,
        digest=lambda wc: plan.shard_digest(wc.benchmark, int(wc.shard)),
    log:
        layout.log("shard", "{benchmark}", "{shard}"),
    localrule: True
    conda:
        "../../environment.yml"
    shell:
        "adafuse step shard --config {params.config:q} --benchmark {wildcards.benchmark}"
        " --shard {wildcards.shard} --out {output:q} 2> {log:q}"
