# `snakemake prefetch`, on a machine with a network: downloads the models and data sets, and records
# their commits. What is said goes to the terminal, for its progress bars, as well as into the log.


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
        "adafuse step prefetch --config {params.config:q} --log {log:q}"
