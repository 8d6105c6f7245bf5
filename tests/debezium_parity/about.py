"""``golden/about.json``: the versions, statements and properties of the run that the golden records come from."""

from __future__ import annotations

import hashlib
import json
from typing import Any, Final

from tests.debezium_parity import golden
from tests.debezium_parity.artifacts import debezium_version
from tests.debezium_parity.statements import AFTER_SNAPSHOT, BEFORE_SNAPSHOT, DATABASE, SESSION
from tests.debezium_parity.variants import VARIANTS

KAFKA_CONNECT: Final = "4.3.1"
MYSQL: Final = "8.0.15"

_FILE: Final = golden.FOLDER / "about.json"


def current() -> dict[str, Any]:
    """Return what a recording would use now."""
    return {
        "debezium": debezium_version(),
        "mysql": MYSQL,
        "kafka_connect": KAFKA_CONNECT,
        "database": DATABASE,
        "statements": {
            "session": _digest(SESSION),
            "before_snapshot": _digest(BEFORE_SNAPSHOT),
            "after_snapshot": _digest(AFTER_SNAPSHOT),
        },
        "variants": {variant.name: variant.debezium for variant in VARIANTS},
    }


def stored() -> dict[str, Any]:
    """Return what the stored records were recorded with; empty before the first recording."""
    return dict(json.loads(_FILE.read_text(encoding="utf-8"))) if _FILE.is_file() else {}


def store(about: dict[str, Any]) -> None:
    """Write the file."""
    _FILE.write_text(json.dumps(about, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def _digest(statements: tuple[str, ...]) -> str:
    return hashlib.sha256("\0".join(statements).encode()).hexdigest()
