# The workflow is workflow/Snakefile; with this file `snakemake` finds it from the project's root.


include: "workflow/Snakefile"


# Snakemake takes no default target from a file that is included.
workflow.default_target = "all"
