"""What Snakemake plans, a JSON line per job, from its own log records.

Run as a script: `planned.py`, then the arguments of snakemake.
"""

import json
import logging
import sys

from snakemake.cli import main
from snakemake.logging import logger
from snakemake_interface_logger_plugins.common import LogEvent


def _tell(record: logging.LogRecord) -> bool:
    if getattr(record, "event", None) == LogEvent.JOB_INFO:
        job = {"rule": record.rule_name, "wildcards": dict(record.wildcards or {})}
        sys.stdout.write(json.dumps(job) + "\n")
    return True


if __name__ == "__main__":
    logger.addFilter(_tell)  # handlers are removed when Snakemake sets up its own
    main([*sys.argv[1:], "--dry-run"])
