# What needs a network, once, on a machine that has one: `snakemake prefetch`. Data sets are fetched
# whenever the workflow is planned; this does the models, and records their commits.


rule prefetch:
    params:
        config=layout.config,
    log:
        layout.log("prefetch"),
    localrule: True
    conda:
        "../../environment.yml"
    shell:
        "adafuse step prefetch --config {params.config:q} 2> {log:q}"
