# Prompts with answers for scoring, and prompts in shards for decoding. Both are made from the source,
# which is no input: a job is rerun when the digest of its rows has changed, whatever the time of a
# file. (A shard made from the output of `prepare` would be rerun with it; with ancient(), never,
# because Snakemake ignores the parameters of a job whose input is remade.)


rule prepare:
    input:
        planned("prepare"),
    output:
        layout.rows("{benchmark}"),
    log:
        layout.log("prepare", "{benchmark}"),
    localrule: True
    conda:
        "../../environment.yml"
    envmodules:
        *plan.config.envmodules,
    params:
        config=layout.config,
        digest=key_of("prepare"),
    shell:
        "adafuse step prepare --config {params.config:q} --benchmark {wildcards.benchmark}"
        " --out {output:q} --digest {params.digest} 2> {log:q}"


rule shard:
    input:
        planned("shard"),
    output:
        layout.shard_rows("{benchmark}", "{shard}"),
    log:
        layout.log("shard", "{benchmark}", "{shard}"),
    localrule: True
    conda:
        "../../environment.yml"
    envmodules:
        *plan.config.envmodules,
    params:
        config=layout.config,
        digest=key_of("shard"),
    shell:
        "adafuse step shard --config {params.config:q} --benchmark {wildcards.benchmark}"
        " --shard {wildcards.shard} --out {output:q} --digest {params.digest} 2> {log:q}"
