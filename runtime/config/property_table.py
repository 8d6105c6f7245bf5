"""The properties of a configuration by name: look-up, suggestions for misspelled names, and masking of secrets."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import Final

from tailrace.runtime.config.property import Property, Support

MASK: Final = "********"
_HARMLESS: Final = re.compile(
    # Clients of Kafka, by librdkafka's names and by Java's.
    r"acks|auto\.offset\.reset|batch\.(size|num\.messages)|buffer\.memory|client\.id|compression\.(type|codec|level)"
    r"|broker\.address\.(family|ttl)|enable\.(idempotence|ssl\.certificate\.verification)|group\.id|isolation\.level"
    r"|(fetch|message|receive\.message|socket|queue|queued|request|session|connections|reconnect|retry|linger|metadata"
    r"|heartbeat|delivery|max|topic|statistics|transaction|default\.api)(\.[a-z]+)*\.(ms|bytes|kbytes|messages|size)"
    r"|max\.(poll\.records|in\.flight(\.requests\.per\.connection)?)|message\.send\.max\.retries|retries"
    r"|security\.protocol|sasl\.(mechanisms?|username|kerberos\.service\.name)|ssl\.endpoint\.identification\.algorithm"
    r"|ssl\.(ca|certificate|key|truststore|keystore)\.(location|type)"
    # Spark.
    r"|app\.name|master|submit\.deployMode|jars\.packages|local\.dir|default\.parallelism|cores\.max"
    r"|(driver|executor)\.(memory|memoryOverhead|cores|instances|host|bindAddress|port)"
    r"|sql\.(extensions|warehouse\.dir|session\.timeZone|catalog\.spark_catalog)"
    r"|sql\.(shuffle|adaptive|streaming|files|parquet)\.[A-Za-z.]+|databricks\.delta\.[A-Za-z.]+|ui\.(enabled|port)",
)
"""Settings that are passed on and may be shown. All others may be secrets, since only the receiver knows them."""

_SECRET_NAME: Final = re.compile(r"password|secret|jaas|token|credential|private|\.pem$|\.key$", re.IGNORECASE)


class PropertyTable:
    """Finds properties. An exact name takes precedence over wildcards; among wildcards the first one wins."""

    def __init__(self, properties: Iterable[Property]) -> None:
        self.properties = tuple(properties)
        self._exact = {name: entry for entry in self.properties if not entry.is_wildcard for name in entry.names}
        self._wildcards = tuple(entry for entry in self.properties if entry.is_wildcard)

    def find(self, name: str) -> Property | None:
        return self._exact.get(name) or next((entry for entry in self._wildcards if entry.matches(name)), None)

    def suggestion(self, name: str, *, cutoff: float = 0.75) -> str:
        """Return ``; did you mean …?`` with the known name that is most similar, or ''."""
        by_lower_case = {known.lower(): known for known in self._exact}
        similar = difflib.get_close_matches(name.lower(), by_lower_case, n=1, cutoff=cutoff)
        return f"; did you mean {by_lower_case[similar[0]]}?" if similar else ""

    def is_secret(self, name: str) -> bool:
        """Return whether the value of a setting must not be shown."""
        entry = self.find(name)
        if entry is None or (entry.is_wildcard and entry.support is not Support.SUPPORTED):
            return True  # nobody knows what it is: perhaps a misspelled password
        if entry.support is Support.SUPPORTED:
            if not entry.is_wildcard:
                return entry.secret
            if entry.is_prefix and entry.secret:
                return _HARMLESS.fullmatch(entry.suffix(name)) is None
        return _SECRET_NAME.search(name) is not None

    def redact(self, name: str, value: str) -> str:
        """Return a value for an error message: quoted, or masked."""
        return MASK if self.is_secret(name) else repr(value)
