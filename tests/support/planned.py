"""What Snakemake plans, a JSON line per job, from its own log records.

Run as a script: `planned.py NAME=VALUE... -- snakemake arguments`; each NAME of `adafuse.version`
is set to VALUE first, as if the package had changed.
"""

import json
import logging
import sys

from snakemake.cli import main
from snakemake.logging import logger
from snakemake_interface_logger_plugins.common import LogEvent

import adafuse.version


def _tell(record: logging.LogRecord) -> bool:
    if getattr(record, "event", None) == LogEvent.JOB_INFO:
        job = {"rule": record.rule_name, "wildcards": dict(record.wildcards or {})}
        sys.stdout.write(json.dumps(job) + "\n")
    return True


if __name__ == "__main__":
    cut = sys.argv.index("--")
    for change in sys.argv[1:cut]:
        name, value = change.split("=")
        assert hasattr(adafuse.version, name)
        setattr(adafuse.version, name, int(value))
    logger.addFilter(_tell)  # handlers are removed when Snakemake sets up its own
    main([*sys.argv[cut + 1 :], "--dry-run"])
