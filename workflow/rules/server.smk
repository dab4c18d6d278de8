# Servers that the workflow starts: one for each model with `serve`. The job is done when the server is
# ready; the server ends when Snakemake deletes the file that says where it is, after the last job
# that needs it. On a cluster, this machine starts it on a node, with the resources of this job.


rule server:
    input:
        inputs("server"),
    output:
        temp(outputs("server")["server"]),
    log:
        log_of("server"),
    wildcard_constraints:
        **plan.wildcards("server"),
    priority: 1
    localrule: True
    conda:
        "../../environment.yml"
    container:
        None
    envmodules:
        *plan.config.envmodules,
    resources:
        gpu=lambda wc: plan.server_resources(wc.model).gpu,
        mem_mb=lambda wc: plan.server_resources(wc.model).mem_mb,
        runtime=lambda wc: plan.server_resources(wc.model).runtime,
    params:
        command=command("server"),
        srun=lambda wc, resources: srun(wc.model, resources),
    shell:
        "{params.command} --srun={params.srun:q} 2> {log:q}"
