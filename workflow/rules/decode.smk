# The steps that load models, and may run on a cluster: a decode job per shard and run, and a fit job
# per gate that a run learns from development rows.


resource_scopes:
    one_at_a_time="local",


# Snakemake deletes the log before each attempt; the hard link keeps the output of all attempts.
# SIGTERM waits for the job, so that its log says how it ended.
WITH_ITS_LOG = (
    ": >> {log:q}.attempts; ln -f {log:q}.attempts {log:q} || true; trap : TERM;"
    " OMP_NUM_THREADS=1 {params.command} 2>> {log:q}"
    " || {{ status=$?; adafuse step ended $status 2>> {log:q}; exit $status; }}"
)


rule decode:
    input:
        inputs("decode"),
    output:
        **outputs("decode"),
    log:
        log_of("decode"),
    wildcard_constraints:
        **plan.wildcards("decode"),
    # With `cluster.group`, jobs that share models are one job of the cluster, one after the other.
    group:
        group_of(workflow, plan)
    conda:
        "../../environment.yml"
    envmodules:
        *plan.config.envmodules,
    # A timed job has the machine to itself, but uses no more threads than other jobs.
    threads: lambda wc: max(1, workflow.cores or 1) if is_timed(wc) else 1
    # Each attempt asks for more memory and time; the decoded rows are kept.
    resources:
        gpu=lambda wc, attempt: needed(wc, attempt).gpu,
        mem_mb=lambda wc, attempt: needed(wc, attempt).mem_mb,
        runtime=lambda wc, attempt: needed(wc, attempt).runtime,
        # All GPUs of a job are on one node: Slurm would spread --gpus=2 over two.
        nodes=1,
        one_at_a_time=1,
        slurm_extra=lambda wc: "--exclusive" if is_timed(wc) else "",
    params:
        command=command("decode"),
    shell:
        WITH_ITS_LOG


rule fit:
    input:
        inputs("fit"),
    output:
        **outputs("fit"),
    log:
        log_of("fit"),
    wildcard_constraints:
        **plan.wildcards("fit"),
    conda:
        "../../environment.yml"
    envmodules:
        *plan.config.envmodules,
    resources:
        gpu=lambda wc, attempt: plan.fit_resources(*wc, attempt).gpu,
        mem_mb=lambda wc, attempt: plan.fit_resources(*wc, attempt).mem_mb,
        runtime=lambda wc, attempt: plan.fit_resources(*wc, attempt).runtime,
        nodes=1,  # as in `decode`
    params:
        command=command("fit"),
    shell:
        WITH_ITS_LOG
