"""A real REST catalog of Iceberg: Iceberg's own servlet over a JDBC catalog in SQLite, in Jetty.

The Iceberg project tests its clients with this servlet; a server as a whole is not in the public repository. Jetty puts
it together from a file.
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from typing import Final
from urllib.error import URLError
from urllib.request import ProxyHandler, build_opener
from xml.sax.saxutils import escape

from tests.embedded.artifacts import fetch
from tests.embedded.java import EmbeddedServerError, java
from tests.embedded.server import Launch, SupervisedServer

VERSION: Final = "1.10.1"
"""The newest version whose servlet is in the public repository. The client is of the version in ``jars.toml``."""

_OPENER: Final = build_opener(ProxyHandler({}))
_SETTINGS: Final = """<?xml version="1.0"?>
<!DOCTYPE Configure PUBLIC "-//Jetty//Configure//EN" "https://www.eclipse.org/jetty/configure_10_0.dtd">
<Configure id="server" class="org.eclipse.jetty.server.Server">
  <New id="catalog" class="org.apache.iceberg.jdbc.JdbcCatalog">
    <Call name="setConf"><Arg><New class="org.apache.hadoop.conf.Configuration"/></Arg></Call>
    <Call name="initialize">
      <Arg>backend</Arg>
      <Arg>
        <Map>
          <Entry><Item>uri</Item><Item>jdbc:sqlite:{folder}/catalog.db</Item></Entry>
          <Entry><Item>warehouse</Item><Item>{folder}/warehouse</Item></Entry>
          <Entry><Item>jdbc.schema-version</Item><Item>V1</Item></Entry>
        </Map>
      </Arg>
    </Call>
  </New>
  <Call name="addConnector">
    <Arg>
      <New class="org.eclipse.jetty.server.ServerConnector">
        <Arg><Ref refid="server"/></Arg>
        <Set name="host">{host}</Set>
        <Set name="port">{port}</Set>
      </New>
    </Arg>
  </Call>
  <Set name="handler">
    <New class="org.eclipse.jetty.servlet.ServletContextHandler">
      <Call name="addServlet">
        <Arg>
          <New class="org.eclipse.jetty.servlet.ServletHolder">
            <Arg>
              <New class="org.apache.iceberg.rest.RESTCatalogServlet">
                <Arg>
                  <New class="org.apache.iceberg.rest.RESTCatalogAdapter"><Arg><Ref refid="catalog"/></Arg></New>
                </Arg>
              </New>
            </Arg>
          </New>
        </Arg>
        <Arg>/*</Arg>
      </Call>
    </New>
  </Set>
</Configure>
"""


class IcebergRestCatalog(SupervisedServer):
    """One catalog on 127.0.0.1 with its tables in its own folder. After a restart it has the same tables."""

    kind = "iceberg-rest"
    title = "the REST catalog of Iceberg"
    grace_s = 10
    pause_s = 0.1

    def __init__(self, *, port: int | None = None, directory: Path | None = None, heap_mb: int = 256) -> None:
        super().__init__(port=port, directory=directory)
        self._heap_mb = heap_mb

    @property
    def url(self) -> str:
        """The root of the API: the property ``uri`` of a client."""
        return f"http://{self.host}:{self.port}/"

    def _launch(self) -> Launch:
        settings = self.directory / "jetty.xml"
        text = _SETTINGS.format(folder=escape(str(self.directory)), host=self.host, port=self.port)
        settings.write_text(text, encoding="utf-8")
        command: list[str | Path] = [java(), f"-Xmx{self._heap_mb}m", f"-Djava.io.tmpdir={self.directory}", "-cp"]
        command += [os.pathsep.join(map(str, _classpath())), "org.eclipse.jetty.xml.XmlConfiguration", settings]
        return Launch(command)

    def _answers(self) -> bool:
        try:
            with _OPENER.open(f"{self.url}v1/config", timeout=60) as response:
                return bool(response.status == 200)
        except (URLError, OSError):
            return False


def prepare() -> None:
    """Put everything that a start needs into the cache."""
    _classpath()


def _classpath() -> list[Path]:
    """Return the jars: those of the list, and of PySpark for Hadoop, Jackson, Avro and the log."""
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise EmbeddedServerError("PySpark is not installed; its jars have Hadoop", hint="run: ./run setup")
    return [*fetch("iceberg-rest"), *fetch("sqlite"), Path(spec.origin).parent / "jars" / "*"]
