"""The JDBC sink gives its password to no server on another host that does not prove who it is."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from tailrace.spark_consumer import config
from tailrace.spark_consumer.errors import TargetUnavailableError
from tailrace.spark_consumer.sink.jdbc_dialect import load_dialect
from tailrace.spark_consumer.sink.jdbc_session import Connections, JdbcOptions, connection_properties

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PASSWORD = "open-sesame"


@contextmanager
def _without_tls() -> Iterator[tuple[int, list[bytes]]]:
    """A server of PostgreSQL's protocol that declines TLS and asks for the password in clear; what it received."""
    received: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            while True:
                try:
                    peer, _ = listener.accept()
                except OSError:
                    return
                with peer:
                    peer.settimeout(30)
                    peer.recv(4096)
                    peer.sendall(b"N")
                    if peer.recv(4096):
                        peer.sendall(b"R" + (8).to_bytes(4, "big") + (3).to_bytes(4, "big"))
                        received.append(peer.recv(4096))

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        yield listener.getsockname()[1], received
        listener.shutdown(socket.SHUT_RDWR)
    thread.join()


@pytest.mark.spark
def test_a_server_that_declines_tls_gets_no_password(spark: SparkSession) -> None:
    """0.0.0.0 is this host, but says so to nobody. What is allowed by name is done."""

    def connect(port: int, **properties: str) -> None:
        url = f"jdbc:postgresql://0.0.0.0:{port}/db?connectTimeout=20&socketTimeout=20"
        given = {f"sink.properties.{name}": value for name, value in properties.items()}
        options = config.parse(
            {
                "bootstrap.servers": "broker:9092",
                "topic.prefix": "shop",
                "checkpointLocation": "/c",
                "sink": "jdbc",
                "sink.url": url,
                "sink.user": "ann",
                "sink.password": _PASSWORD,
                **given,
            }
        ).sink_options
        assert isinstance(options, JdbcOptions)
        dialect = load_dialect(url)
        connections = Connections(spark, url, dialect.driver, connection_properties(options, dialect), ())
        with connections.session():
            pass

    with _without_tls() as (port, received):
        with pytest.raises(TargetUnavailableError, match="SSL") as caught:
            connect(port)
        assert received == []
        assert "sink.properties" in caught.value.hint
        with pytest.raises(TargetUnavailableError):
            connect(port, sslmode="disable")
