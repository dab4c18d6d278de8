# AdaFuse, from benchmarks to the comparison table. Settings: config/README.md.

from snakemake.utils import min_version, validate

min_version("9.27")


# A configuration given with --configfile replaces the toy one; the two are not merged.
if not workflow.overwrite_configfiles:

    configfile: "config/toy.yaml"


include: "workflow/rules/common.smk"


validate(config, "workflow/schemas/config.schema.json")


include: "workflow/rules/benchmarks.smk"
include: "workflow/rules/datasets.smk"
include: "workflow/rules/decode.smk"
include: "workflow/rules/choose.smk"
include: "workflow/rules/score.smk"
include: "workflow/rules/tables.smk"
include: "workflow/rules/comparison.smk"
include: "workflow/rules/experiments.smk"
include: "workflow/rules/prefetch.smk"
include: "workflow/rules/targets.smk"
include: "workflow/rules/report.smk"


rule all:
    default_target: True
    localrule: True
    input:
        tables,
        experiments if "experiments" in plan.config.targets else [],
        pages,
