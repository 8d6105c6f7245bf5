"""``python -m tailrace.spark_consumer.config --docs DIRECTORY`` writes the reference page."""

from __future__ import annotations

import sys

from tailrace.runtime.config.reference import write_pages
from tailrace.spark_consumer.config.definition import pages

if __name__ == "__main__":
    sys.exit(write_pages(pages(), sys.argv[1:]))
