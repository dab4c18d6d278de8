# One decode job per shard and run: the only step that loads models.


rule decode:
    input:
        planned("decode"),
        rows=rules.shard.output,
        answers=lambda wc: [
            layout.shard_trace(wc.benchmark, run, wc.shard) for run in plan.answer_runs(wc.run)
        ],
        gate=lambda wc: plan.gates(wc.benchmark, wc.run),
    output:
        layout.shard_trace("{benchmark}", "{run}", "{shard}"),
    log:
        layout.log("decode", "{benchmark}", "{run}", "{shard}"),
    wildcard_constraints:
        run=one_of(plan.decoded_runs),
    conda:
        "../../environment.yml"
    envmodules:
        *plan.config.envmodules,
    # A timed job has the machine to itself, but uses no more threads than other jobs.
    threads: lambda wc: max(1, workflow.cores or 1) if plan.config.benchmarks[wc.benchmark].timed else 1
    # Each attempt asks for more memory and time; the decoded rows are kept.
    resources:
        gpu=lambda wc, attempt: resources_of(wc, attempt).gpu,
        mem_mb=lambda wc, attempt: resources_of(wc, attempt).mem_mb,
        runtime=lambda wc, attempt: resources_of(wc, attempt).runtime,
        # All GPUs of a job are on one node: Slurm would spread --gpus=2 over two.
        nodes=1,
        slurm_extra=lambda wc: "--exclusive" if plan.config.benchmarks[wc.benchmark].timed else "",
    params:
        config=layout.config,
        digest=key_of("decode"),
        answers=lambda wc, input: [f"--answers={file}" for file in input.get("answers", [])],
        gate=lambda wc, input: [f"--gate={file}" for file in input.get("gate", [])],
    # Snakemake deletes the log before each attempt; the hard link keeps the output of all attempts.
    shell:
        ": >> {log:q}.attempts; ln -f {log:q}.attempts {log:q} || true;"
        " OMP_NUM_THREADS=1 adafuse step decode --config {params.config:q} --benchmark {wildcards.benchmark}"
        " --run {wildcards.run} --shard {wildcards.shard} --rows {input.rows:q}"
        " --digest {params.digest} {params.answers:q} {params.gate:q} --out {output:q} 2>> {log:q}"
        " || {{ status=$?; adafuse step ended $status 2>> {log:q}; exit $status; }}"


rule merge:
    input:
        planned("merge"),
        shards=lambda wc: expand(rules.decode.output, shard=plan.shards(wc.benchmark), allow_missing=True),
        rows=lambda wc: expand(rules.shard.output, shard=plan.shards(wc.benchmark), allow_missing=True),
    output:
        layout.trace("{benchmark}", "{run}"),
    log:
        layout.log("merge", "{benchmark}", "{run}"),
    wildcard_constraints:
        run=one_of(plan.decoded_runs),
    localrule: True
    conda:
        "../../environment.yml"
    envmodules:
        *plan.config.envmodules,
    params:
        digest=key_of("merge"),
        digests=lambda wc: ",".join(plan.digests(wc.benchmark, wc.run)),
        rows=lambda wc, input: [f"--rows={file}" for file in input.rows],
    shell:
        "adafuse step merge {input.shards:q} --digests {params.digests} {params.rows:q}"
        " --out {output:q} --digest {params.digest} 2> {log:q}"
