"""Hands records to librdkafka by the compiled extension, without Python's binding and its objects.

The binding makes the client. It loads the extension as a plugin of librdkafka, which is how the extension gets the
client's handle, and it keeps transactions, errors, polling and the end of the client.
"""

from __future__ import annotations

import ctypes
import threading
from functools import cache
from typing import TYPE_CHECKING, Final

import structlog
from confluent_kafka import KafkaException, Producer, cimpl, libversion

from tailrace.producer.kafka.client import ClientConfig
from tailrace.producer.native import loader
from tailrace.producer.native.loader import codec

if TYPE_CHECKING:
    from tailrace.producer.native.codec import Sender

log = structlog.get_logger(__name__)

_PLUGINS: Final = "plugin.library.paths"
_SEPARATOR: Final = ";"
_ALL_REPORTS: Final = {"delivery.report.only.error": False}
"""Without the extension the reports of delivered records tell which acknowledgements are inferred."""
_MAJOR: Final = 2
"""The version of librdkafka whose functions are called."""
_creating: Final = threading.Lock()
"""The extension takes the handle of the client that was made last."""


def unused_because() -> str:
    """Return why records are sent by the binding; empty if the extension sends them."""
    return loader.unused_because() or _library_problem()


@cache
def _library_problem() -> str:
    text, number = libversion()
    if number >> 24 != _MAJOR:
        return f"librdkafka {text} is not of version {_MAJOR}"
    if _SEPARATOR in codec.__file__:
        return f"the path of the extension contains {_SEPARATOR!r}: {codec.__file__}"
    try:
        # A search in a module includes its libraries: these are the functions that the binding uses.
        library = ctypes.CDLL(cimpl.__file__)
        functions = [getattr(library, f"rd_kafka_{name}") for name in codec.FUNCTIONS]
    except (OSError, AttributeError) as error:
        return f"the functions of librdkafka are not found: {error}"
    codec.use_library([ctypes.cast(function, ctypes.c_void_p).value or 0 for function in functions])
    return ""


def new_client(config: ClientConfig) -> tuple[Producer, Sender | None]:
    """Return a producer, and what sends its records; None: the producer itself."""
    if unused_because():
        return Producer({**config, **_ALL_REPORTS}), None
    plugins = [str(config[_PLUGINS])] if config.get(_PLUGINS) else []
    extended = {**config, _PLUGINS: _SEPARATOR.join([*plugins, codec.__file__])}
    with _creating:
        try:
            client = Producer(extended)
            return client, codec.Sender(client)
        except (KafkaException, ValueError) as error:
            # If the configuration is wrong, this raises the same error again.
            client = Producer({**config, **_ALL_REPORTS})
            log.warning("records are sent by Kafka's Python binding", reason=str(error))
            return client, None
