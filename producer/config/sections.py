"""The configuration as the producer sees it: one frozen object for each section, secrets that cannot print."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from re import Pattern
from typing import Literal

from pydantic import BaseModel, ConfigDict, SecretStr

from tailrace.producer.config.column_transforms import ColumnTransforms, read_rule
from tailrace.producer.config.filters import ColumnFilter, MessageKeys, TableFilter, any_matches, compile_list
from tailrace.producer.config.registry_settings import RegistrySettings
from tailrace.producer.model.table import TableId
from tailrace.producer.model.value_options import Converter, NameAdjustment, ValueOptions


class Section(BaseModel):
    """Base of the sections: frozen, and nothing in it but what is declared."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class DatabaseConfig(Section):
    """How to reach the source. ``ssl_*`` are paths of PEM files."""

    hostname: str
    port: int = 3306
    user: str
    password: SecretStr = SecretStr("")
    server_id: int
    ssl_mode: Literal["disabled", "preferred", "required", "verify_ca", "verify_identity"] = "preferred"
    ssl_ca: str | None = None
    ssl_cert: str | None = None
    ssl_key: str | None = None
    connect_timeout_ms: int = 30_000
    query_timeout_ms: int = 600_000
    """0 waits for ever."""
    initial_statements: tuple[str, ...] = ()


class TopicsConfig(Section):
    """Names and settings of topics; see producer/serialization/envelope/topic_names.py for whole names."""

    prefix: str
    delimiter: str = "."
    transaction: str = "transaction"
    heartbeat_prefix: str = "__debezium-heartbeat"
    heartbeat_name: str | None = None
    partitions: int = -1
    """-1: as the broker decides."""
    replication_factor: int = -1
    """-1: as the broker decides."""
    settings: Mapping[str, str] = {}
    """Topic settings such as ``cleanup.policy`` for a table's topic when it is made."""


class KafkaConfig(Section):
    """How to reach Kafka. ``overrides`` are librdkafka's own names; they may hold secrets and are never printed."""

    bootstrap_servers: str
    overrides: Mapping[str, SecretStr] = {}
    transaction_timeout_ms: int = 60_000

    def client_settings(self) -> dict[str, str]:
        """Return the settings for a librdkafka client: the overrides in clear, and the brokers."""
        clear = {name: value.get_secret_value() for name, value in self.overrides.items()}
        return {**clear, "bootstrap.servers": self.bootstrap_servers}


class FiltersConfig(Section):
    """The lists of expressions as given, and the filters made of them."""

    database_include: str = ""
    database_exclude: str = ""
    table_include: str = ""
    table_exclude: str = ""
    ignore_built_in: bool = True
    column_include: str = ""
    column_exclude: str = ""
    message_key_columns: str = ""
    column_rules: tuple[tuple[SecretStr, str], ...] = ()
    """Properties that change values: name, which may hold a salt, and expressions."""
    source_types: str = ""
    source_types_by_type: str = ""
    skip_unchanged: bool = False

    @cached_property
    def tables(self) -> TableFilter:
        """The filter of databases and tables."""
        return TableFilter(
            database_include=self.database_include,
            database_exclude=self.database_exclude,
            table_include=self.table_include,
            table_exclude=self.table_exclude,
            ignore_built_in=self.ignore_built_in,
        )

    @cached_property
    def columns(self) -> ColumnTransforms:
        """What becomes of columns."""
        return ColumnTransforms(
            ColumnFilter(include=self.column_include, exclude=self.column_exclude),
            [read_rule(name.get_secret_value(), text) for name, text in self.column_rules],
            source_types=self.source_types,
            source_types_by_type=self.source_types_by_type,
        )

    @cached_property
    def message_keys(self) -> MessageKeys:
        """Key columns in place of the primary key."""
        return MessageKeys.parse(self.message_key_columns)


class SnapshotConfig(Section):
    """How tables are read."""

    mode: Literal["always", "initial", "initial_only", "no_data", "when_needed", "recovery", "configuration_based"] = (
        "initial"
    )
    based_data: bool = False
    based_stream: bool = False
    based_on_data_error: bool = False
    """The parts of the mode configuration_based."""
    include: str = ""
    """Expressions of the tables that are read; empty: every captured one."""
    max_threads: int = 2
    chunk_size: int = 8192
    """Rows of one split."""
    even_upper: float = 100.0
    even_lower: float = 0.05

    def wants(self, table: str) -> bool:
        """Tell whether a table that was never followed is read first."""
        reads = self.based_data if self.mode == "configuration_based" else self.mode not in {"no_data", "recovery"}
        return reads and (not self.included or any_matches(self.included, table))

    @property
    def ends(self) -> bool:
        """Whether the capture ends when every table is read."""
        return self.mode == "initial_only" or (self.mode == "configuration_based" and not self.based_stream)

    @property
    def always(self) -> bool:
        """Whether each start reads the tables again."""
        return self.mode == "always" or (self.mode == "configuration_based" and self.based_data and self.based_stream)

    @property
    def renews(self) -> bool:
        """Whether tables are read again where the log that follows the stored position is gone."""
        return self.mode == "when_needed" or (self.mode == "configuration_based" and self.based_on_data_error)

    @cached_property
    def included(self) -> tuple[Pattern[str], ...]:
        """The expressions, compiled."""
        return compile_list(self.include)


class ValuesConfig(Section):
    """How values and envelopes are written; the modes are Debezium's words."""

    decimal: Literal["precise", "double", "string"] = "precise"
    time: Literal["adaptive_time_microseconds", "connect", "isostring", "microseconds", "nanoseconds"] = (
        "adaptive_time_microseconds"
    )
    bigint_unsigned: Literal["long", "precise"] = "long"
    binary: Literal["bytes", "base64", "base64-url-safe", "hex"] = "bytes"
    time_adjuster: bool = True
    tinyint_as_int8: bool = False
    tombstones: bool = True
    skipped_operations: frozenset[str] = frozenset({"t"})
    context_headers: bool = True
    include_query: bool = False
    transaction_metadata: bool = False
    schema_changes: bool = False
    schema_comments: bool = False

    @property
    def settings(self) -> ValueOptions:
        """The modes that the type table and the codecs need."""
        return ValueOptions(
            time_precision_mode=self.time,
            decimal_handling_mode=self.decimal,
            bigint_unsigned_handling_mode=self.bigint_unsigned,
            binary_handling_mode=self.binary,
            enable_time_adjuster=self.time_adjuster,
            tinyint_as_int8=self.tinyint_as_int8,
        )


class ConvertersConfig(Section):
    """In which bytes keys and values are written."""

    key: Literal["json", "avro"] | None = None
    value: Literal["json", "avro"] | None = None
    key_schemas: bool | None = None
    value_schemas: bool | None = None
    key_registry: SecretStr | None = None
    value_registry: SecretStr | None = None
    key_credentials: Literal["url", "user_info"] = "url"
    value_credentials: Literal["url", "user_info"] = "url"
    key_user_info: SecretStr | None = None
    value_user_info: SecretStr | None = None
    key_auto_register: bool = True
    value_auto_register: bool = True
    key_trusted: str = ""
    value_trusted: str = ""
    key_identity: str = ""
    value_identity: str = ""
    key_identity_password: SecretStr | None = None
    value_identity_password: SecretStr | None = None
    nulls: Literal["correct", "debezium-exact"] = "correct"
    schema_names: NameAdjustment = "none"
    field_names: NameAdjustment = "none"

    @property
    def forms(self) -> tuple[Converter, Converter]:
        """The forms of keys and of values; the JSON converter writes schemas unless told not to, as in Connect."""
        return _form(self.key, self.key_schemas), _form(self.value, self.value_schemas)

    @property
    def plain(self) -> bool:
        """Whether all is JSON without schemas and nothing is replaced."""
        unchanged = self.nulls == "correct" and self.field_names == "none"
        return self.forms == ("json", "json") and unchanged

    def registry(self, side: Literal["key", "value"]) -> RegistrySettings:
        """Return where the registry of one side is; only where that side is Avro."""
        url, user_info, password = (
            getattr(self, f"{side}_{name}") for name in ("registry", "user_info", "identity_password")
        )
        assert url is not None
        by_name = getattr(self, f"{side}_credentials") == "user_info"
        return RegistrySettings(
            url.get_secret_value(),
            user_info.get_secret_value() if user_info is not None and by_name else "",
            auto_register=getattr(self, f"{side}_auto_register"),
            ca_file=getattr(self, f"{side}_trusted"),
            client_certificate=getattr(self, f"{side}_identity"),
            key_password=password.get_secret_value() if password is not None else "",
        )


def _form(converter: str | None, schemas: bool | None) -> Converter:
    if converter == "avro":
        return "avro"
    return "json-schema" if (schemas if schemas is not None else converter is not None) else "json"


class SignalsConfig(Section):
    """Where signals come from."""

    channels: frozenset[str] = frozenset({"source"})
    collection: str | None = None
    """The signal table as ``db.table``; None: there is none."""
    kafka_topic: str | None = None
    """None: ``<prefix>-signal``."""
    kafka_servers: str | None = None
    """None: the brokers that all is written to."""
    kafka_group: str = "kafka-signal"
    kafka_wait_ms: int = 0
    consumer: Mapping[str, SecretStr] = {}
    """Settings of the topic's reader, by librdkafka's names."""
    file: str = "file-signals.txt"
    poll_interval_ms: int = 5000

    @property
    def table(self) -> TableId | None:
        """The signal table, where that channel is on."""
        if "source" not in self.channels or self.collection is None:
            return None
        database, _, table = self.collection.partition(".")
        return TableId(database, table)


class NotificationsConfig(Section):
    """Whom snapshots are told to."""

    channels: frozenset[str] = frozenset()
    topic: str | None = None


class HeartbeatConfig(Section):
    """What is said while nothing changes."""

    interval_ms: int = 0
    """0: nothing."""
    action_query: str = ""


class BatchConfig(Section):
    """How much of the log goes into one Kafka transaction."""

    max_records: int = 16_384
    commit_interval_ms: int = 200


class OpsConfig(Section):
    """How the process is watched."""

    http_port: int = 0
    """0: no port is opened."""
    http_address: str = "127.0.0.1"
    log_format: Literal["auto", "json", "text"] = "auto"
    log_level: Literal["debug", "info", "warning", "error"] = "info"


class ProducerConfig(Section):
    """The whole configuration of a producer. ``warnings`` are for the log: one text for each setting without effect."""

    database: DatabaseConfig
    topics: TopicsConfig
    kafka: KafkaConfig
    filters: FiltersConfig = FiltersConfig()
    snapshot: SnapshotConfig = SnapshotConfig()
    values: ValuesConfig = ValuesConfig()
    converters: ConvertersConfig = ConvertersConfig()
    batch: BatchConfig = BatchConfig()
    heartbeat: HeartbeatConfig = HeartbeatConfig()
    signals: SignalsConfig = SignalsConfig()
    notifications: NotificationsConfig = NotificationsConfig()
    ops: OpsConfig = OpsConfig()
    tables_without_key: Literal["refuse", "full-row"] = "refuse"
    warnings: tuple[str, ...] = ()
