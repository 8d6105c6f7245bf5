"""``python -m tailrace.producer.config --docs DIRECTORY`` writes the reference pages."""

from __future__ import annotations

import sys

from tailrace.producer.config.reference import pages
from tailrace.runtime.config.reference import write_pages

if __name__ == "__main__":
    sys.exit(write_pages(pages(), sys.argv[1:]))
