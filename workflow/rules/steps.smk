# All other steps, which run where Snakemake runs: a rule for each step of adafuse/workflow/steps.py.
#
#     prepare --------------------------> score --> compare, compare_runs, audit --> report
#     shard --> decode --> merge ------->       --> experiment                  --> report
#                          choose ------>       --> examples                    --> report


for step in [name for name in STEPS if name not in ("decode", "fit", "server")]:

    rule:
        name:
            step
        input:
            inputs(step),
        output:
            **outputs(step),
        log:
            log_of(step),
        wildcard_constraints:
            **plan.wildcards(step),
        # A process with models decodes for jobs to come, if their shards are there.
        priority: 1 if step == "shard" else 0
        localrule: True
        conda:
            "../../environment.yml"
        envmodules:
            *plan.config.envmodules,
        params:
            command=command(step),
        shell:
            "{params.command} 2> {log:q}"
