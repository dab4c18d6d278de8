# The tables and figures of the paper.


rule experiment:
    input:
        planned("experiment"),
        lambda wc: plan.experiment_inputs(wc.experiment),
    output:
        csv=layout.experiment("{experiment}", "csv"),
        svg=report(
            layout.experiment("{experiment}", "svg"),
            caption="../report/experiment.rst",
            category="Figures",
            labels={"figure": "{experiment}"},
        ),
        png=layout.experiment("{experiment}", "png"),
    log:
        layout.log("experiments", "{experiment}"),
    localrule: True
    conda:
        "../../environment.yml"
    envmodules:
        *plan.config.envmodules,
    params:
        config=layout.config,
        digest=key_of("experiment"),
    shell:
        "adafuse step experiment --config {params.config:q} --name {wildcards.experiment}"
        " --csv {output.csv:q} --svg {output.svg:q} --png {output.png:q} --digest {params.digest} 2> {log:q}"
