"""MariaDB as a target of the JDBC sink, in a package of its own: what differs from MySQL."""

from __future__ import annotations

from typing import ClassVar, Final

from tailrace.spark_consumer.sink.jdbc_mysql import MySqlDialect

# Spark has no dialect for the URL and quotes the columns of staging tables with ": without ANSI_QUOTES these are texts.
_MODE: Final = "STRICT_ALL_TABLES,NO_ZERO_IN_DATE,NO_ZERO_DATE,ERROR_FOR_DIVISION_BY_ZERO,ANSI_QUOTES"


class MariaDbDialect(MySqlDialect):
    """MariaDB 10.5 and later."""

    driver = "org.mariadb.jdbc.Driver"
    jars = ("org.mariadb.jdbc:mariadb-java-client:3.5.6",)
    properties: ClassVar = {"sessionVariables": f"sql_mode='{_MODE}',time_zone='+00:00'"}
    reading: ClassVar = {}
