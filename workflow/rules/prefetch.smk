# `snakemake prefetch`, on a machine with a network: downloads the models and records their commits.
# Data sets are fetched whenever the workflow is planned.


rule prefetch:
    log:
        plan.layout.log("prefetch"),
    localrule: True
    conda:
        "../../environment.yml"
    envmodules:
        *plan.config.envmodules,
    params:
        config=plan.layout.config,
    shell:
        "adafuse step prefetch --config {params.config:q} 2> {log:q}"
