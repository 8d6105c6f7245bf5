"""Malformed bytes for both implementations of the codec: equal bytes, or the same error; no crash and no hang."""

import os

from tests.fuzz.sanitizer import FOLDER, use_extension

# Before anything imports the extension of the package.
if os.environ.get(FOLDER):
    use_extension(os.environ[FOLDER])
