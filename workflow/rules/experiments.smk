# The tables and figures of the paper.


rule experiment:
    input:
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
    params:
        config=layout.config,
        settings=lambda wc: digest.experiment_settings(plan.config, wc.experiment),
    log:
        layout.log("experiments", "{experiment}"),
    localrule: True
    conda:
        "../../environment.yml"
    shell:
        "adafuse step experiment --config {params.config:q} --name {wildcards.experiment}"
        " --csv {output.csv:q} --svg {output.svg:q} --png {output.png:q} 2> {log:q}"
