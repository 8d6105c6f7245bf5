"""Options of Java's Kafka clients, as Kafka Connect takes them, in librdkafka's names.

Most names are the same in both. This module has those that differ.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

_RENAMED: Final[Mapping[str, str]] = {
    "max.request.size": "message.max.bytes",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
    "ssl.truststore.certificates": "ssl.ca.pem",
}

_IGNORED: Final = frozenset(
    {
        "auto.include.jmx.reporter",
        "compression.gzip.level",
        "compression.lz4.level",
        "compression.zstd.level",
        "key.deserializer",
        "key.serializer",
        "max.block.ms",
        "metadata.max.idle.ms",
        "metric.reporters",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
        "partitioner.adaptive.partitioning.enable",
        "partitioner.availability.timeout.ms",
        "socket.connection.setup.timeout.max.ms",
        "ssl.enabled.protocols",
        "ssl.keymanager.algorithm",
        "ssl.protocol",
        "ssl.secure.random.implementation",
        "ssl.trustmanager.algorithm",
        "value.deserializer",
        "value.serializer",
    }
)
"""Have no meaning for this client, and change nothing that a reader sees."""

_REJECTED: Final[Mapping[str, str]] = {
    "interceptor.classes": "Java classes are not supported; remove it",
    "partitioner.class": "Java classes are not supported; records are partitioned as by the default of Java",
    "partitioner.ignore.keys": "records of one key must go to one partition; remove it",
    "sasl.client.callback.handler.class": "Java classes are not supported; use sasl.mechanism PLAIN or SCRAM",
    "sasl.login.callback.handler.class": "Java classes are not supported; use sasl.mechanism PLAIN or SCRAM",
    "sasl.login.class": "Java classes are not supported; use sasl.mechanism PLAIN or SCRAM",
    "security.providers": "Java classes are not supported; remove it",
    "ssl.engine.factory.class": "Java classes are not supported; use ssl.ca.location and ssl.keystore.location",
    "ssl.provider": "Java classes are not supported; remove it",
}

_USER_MODULE: Final = re.compile(r"\.(?:PlainLoginModule|ScramLoginModule)\s+required\b", re.IGNORECASE)
_JAAS_OPTION: Final = re.compile(
    r"""\b(username|password)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;"']+))"""
)


class ClientOptions(NamedTuple):
    """``problems`` name the option without its prefix; no text has a value."""

    options: dict[str, str]
    problems: list[str]
    ignored: list[str]


def client_options(given: Mapping[str, str]) -> ClientOptions:
    """Return librdkafka's options for these ones, which may have Java's names."""
    result = ClientOptions({}, [], [])
    for name, value in given.items():
        if name in _SPECIAL:
            _SPECIAL[name](value, given, result)
        elif name in _REJECTED:
            result.problems.append(f"{name}: {_REJECTED[name]}")
        elif name in _IGNORED or name.startswith("metrics."):
            result.ignored.append(name)
        else:
            result.options.setdefault(_RENAMED.get(name, name), value)
    return result


Special = Callable[[str, Mapping[str, str], ClientOptions], None]


def _buffer_memory(value: str, _: Mapping[str, str], result: ClientOptions) -> None:
    if not value.strip().isdecimal():
        result.problems.append(f"buffer.memory: {value!r} is not a number of bytes")
        return
    result.options["queue.buffering.max.kbytes"] = str(max(1, int(value) // 1024))


def _jaas(value: str, _: Mapping[str, str], result: ClientOptions) -> None:
    """Take user and password from a login module that has them."""
    if not _USER_MODULE.search(value):
        result.problems.append(
            "sasl.jaas.config: only PlainLoginModule and ScramLoginModule are supported; set sasl.mechanism, "
            "sasl.username and sasl.password"
        )
        return
    found = {
        m[1]: re.sub(r"\\(.)", r"\1", next(g for g in m.groups()[1:] if g is not None))
        for m in _JAAS_OPTION.finditer(value)
    }
    for name in ("username", "password"):
        if name in found:
            result.options[f"sasl.{name}"] = found[name]
        else:
            result.problems.append(f"sasl.jaas.config: {name} is missing; add it, or set sasl.{name}")


def _host_name_check(value: str, _: Mapping[str, str], result: ClientOptions) -> None:
    result.options["ssl.endpoint.identification.algorithm"] = value.strip() or "none"


def _trust_store(value: str, given: Mapping[str, str], result: ClientOptions) -> None:
    kind = given.get("ssl.truststore.type", "JKS").upper()
    if kind == "PEM":
        result.options["ssl.ca.location"] = value
        return
    result.problems.append(
        f"ssl.truststore.location: a trust store of type {kind} cannot be read; export the certificates as PEM, and "
        "set ssl.truststore.type=PEM"
    )


def _key_store(value: str, given: Mapping[str, str], result: ClientOptions) -> None:
    kind = given.get("ssl.keystore.type", "JKS" if value.lower().endswith(".jks") else "PKCS12").upper()
    if kind == "PEM":
        # Java's PEM key store is one file with the key and its certificates.
        result.options["ssl.certificate.location"] = result.options["ssl.key.location"] = value
    elif kind == "PKCS12":
        result.options["ssl.keystore.location"] = value
    else:
        result.problems.append(
            f"ssl.keystore.location: a key store of type {kind} cannot be read; convert it to PKCS12 or PEM, and set "
            "ssl.keystore.type"
        )


def _nothing(_value: str, _given: Mapping[str, str], _result: ClientOptions) -> None:
    """The option only describes another one."""


_SPECIAL: Final[Mapping[str, Special]] = {
    "buffer.memory": _buffer_memory,
    "sasl.jaas.config": _jaas,
    "ssl.endpoint.identification.algorithm": _host_name_check,
    "ssl.keystore.location": _key_store,
    "ssl.keystore.type": _nothing,
    "ssl.truststore.location": _trust_store,
    "ssl.truststore.password": _nothing,
    "ssl.truststore.type": _nothing,
}
