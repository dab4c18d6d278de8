# The tables and figures of the paper: numbers as CSV, and a figure.


rule experiment:
    input:
        lambda wc: paths.experiment_inputs(plan.config, wc.experiment),
    output:
        csv=f"{results}/experiments/{{experiment}}.csv",
        svg=report(
            f"{results}/experiments/{{experiment}}.svg",
            caption="../report/experiment.rst",
            category="Figures",
            labels={"figure": "{experiment}"},
        ),
        png=f"{results}/experiments/{{experiment}}.png",
    params:
        config=plan.config_file,
        layout=lambda wc: plan.experiment_layout(wc.experiment),
    log:
        f"{results}/logs/experiments/{{experiment}}.log",
    localrule: True
    conda:
        "../../environment.yml"
    shell:
        "adafuse step experiment --config {params.config:q} --name {wildcards.experiment}"
        " --csv {output.csv:q} --svg {output.svg:q} --png {output.png:q} 2> {log:q}"
