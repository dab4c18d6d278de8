# One decode job per shard and run: the only step that loads models.


rule decode:
    input:
        rows=rules.shard.output,
    output:
        f"{results}/traces/{{benchmark}}/{{run}}/{{shard}}.parquet",
    params:
        config=plan.config_file,
        digest=lambda wc: plan.digest(wc.benchmark, wc.run, int(wc.shard)),
    log:
        f"{results}/logs/decode/{{benchmark}}/{{run}}/{{shard}}.log",
    threads: 1
    resources:
        gpu=plan.config.decode.gpu,
    conda:
        "../../environment.yml"
    shell:
        "adafuse step decode --config {params.config:q} --benchmark {wildcards.benchmark}"
        " --run {wildcards.run} --shard {wildcards.shard} --rows {input.rows:q}"
        " --digest {params.digest} --out {output:q} 2> {log:q}"


rule merge:
    input:
        shards=lambda wc: expand(
            rules.decode.output, shard=plan.shards(wc.benchmark), allow_missing=True
        ),
    output:
        f"{results}/traces/{{benchmark}}/{{run}}.parquet",
    params:
        digests=lambda wc: ",".join(plan.digests(wc.benchmark, wc.run)),
    log:
        f"{results}/logs/merge/{{benchmark}}/{{run}}.log",
    localrule: True
    conda:
        "../../environment.yml"
    shell:
        "adafuse step merge {input.shards:q} --digests {params.digests} --out {output:q} 2> {log:q}"
