"""Properties of the snapshot, of signals and of notifications."""

from __future__ import annotations

from typing import Final

from tailrace.producer.config.property import (
    ANY,
    BOOLEAN,
    EXPRESSIONS,
    TABLE_NAME,
    TEXT,
    TOPIC_PART,
    Property,
    decimal,
    ignored,
    integer,
    one_of,
    rejected,
    supported,
    words,
)

_NO_LOCK = "the snapshot takes no lock"
_NO_JAVA = "it names a Java class"
_WHOLE = (
    "splits are read by key over the whole table, and the log has every row of it; leave rows out in the consumer, "
    "columns with column.exclude.list"
)
_NO_HISTORY = "the log describes each table version itself; there is no schema history"

PROPERTIES: Final[tuple[Property, ...]] = (
    supported(
        "snapshot.mode",
        "snapshot.mode",
        one_of(
            "initial",
            "initial_only",
            "no_data",
            "when_needed",
            "always",
            "recovery",
            "configuration_based",
            rejected=("custom", "never"),
            schema_only="no_data",
            schema_only_recovery="recovery",
        ),
        "initial",
        "Read the tables once and follow the log (initial), end after reading (initial_only), only follow the log "
        "(no_data; recovery is the same here, with a warning), read the tables again beside the log at each start "
        "(always) or where the log that follows the stored position is gone (when_needed), "
        "or as snapshot.mode.configuration.based.* says.",
        later={"custom": "custom modes are Java classes", "never": "it was taken out of Debezium; use no_data"},
    ),
    supported(
        "snapshot.max.threads", "snapshot.max_threads", integer(1, 256), "2", "Snapshot readers at work.", debezium="1"
    ),
    supported(
        "incremental.snapshot.chunk.size",
        "snapshot.chunk_size",
        integer(1),
        "8192",
        "Rows of one split; for keys cut by arithmetic the number of key values times their density.",
        aliases=("scan.incremental.snapshot.chunk.size",),
        debezium="1024",
    ),
    supported(
        "chunk-key.even-distribution.factor.upper-bound",
        "snapshot.even_upper",
        decimal(1),
        "100.0",
        "Greatest (max-min+1)/rows for which a table is cut by arithmetic; Flink CDC has 1000.",
        aliases=("split-key.even-distribution.factor.upper-bound",),
    ),
    supported(
        "chunk-key.even-distribution.factor.lower-bound",
        "snapshot.even_lower",
        decimal(0),
        "0.05",
        "Least (max-min+1)/rows for which a table is cut by arithmetic.",
        aliases=("split-key.even-distribution.factor.lower-bound",),
    ),
    supported(
        "snapshot.include.collection.list",
        "snapshot.include",
        EXPRESSIONS,
        "",
        "Tables that are read first; the others are only followed in the log. Empty: every captured table.",
    ),
    rejected(
        "snapshot.select.statement.overrides",
        "Tables with a SELECT of their own.",
        _WHOLE,
        "",
    ),
    rejected("snapshot.select.statement.overrides.*", "The SELECT of a table.", _WHOLE),
    rejected("snapshot.query.mode", "Who makes the SELECT.", "custom queries are Java classes", "select_all"),
    ignored("snapshot.query.mode.custom.name", "Java class of the query.", _NO_JAVA),
    ignored("snapshot.mode.custom.name", "Java class of the mode.", _NO_JAVA),
    ignored("snapshot.locking.mode", "Which locks are taken.", _NO_LOCK, harmless=("none",)),
    ignored("snapshot.locking.mode.custom.name", "Java class of the locks.", _NO_LOCK),
    ignored("snapshot.lock.timeout.ms", "Wait for locks.", _NO_LOCK),
    ignored("snapshot.fetch.size", "Rows fetched at once.", "rows are taken as they arrive, whatever the number"),
    ignored("snapshot.delay.ms", "Wait before the snapshot.", "the snapshot starts at once", harmless=("0",)),
    ignored("snapshot.max.threads.multiplier", "Chunks for each thread.", "incremental.snapshot.chunk.size decides"),
    ignored(
        "legacy.snapshot.max.threads", "One thread for each table.", "tables are read in splits", harmless=("false",)
    ),
    ignored(
        "snapshot.tables.order.by.row.count",
        "Order of tables.",
        "tables are read in order of name",
        harmless=("disabled",),
    ),
    ignored("min.row.count.to.stream.results", "When to stream results.", "results are always streamed"),
    supported(
        "snapshot.mode.configuration.based.snapshot.data",
        "snapshot.based_data",
        BOOLEAN,
        "false",
        "With snapshot.mode=configuration_based: read the tables, again at each start.",
    ),
    supported(
        "snapshot.mode.configuration.based.start.stream",
        "snapshot.based_stream",
        BOOLEAN,
        "false",
        "With that mode: follow the log.",
    ),
    supported(
        "snapshot.mode.configuration.based.snapshot.on.data.error",
        "snapshot.based_on_data_error",
        BOOLEAN,
        "false",
        "With that mode: read the tables again where the log that follows the stored position is gone.",
    ),
    ignored("snapshot.mode.configuration.based.snapshot.schema", "Read the definitions.", _NO_HISTORY),
    ignored("snapshot.mode.configuration.based.snapshot.on.schema.error", "Read them again.", _NO_HISTORY),
    ignored(
        "incremental.snapshot.watermarking.strategy",
        "How the source table of signals is written.",
        "watermarks are log positions; nothing is written to the source",
    ),
    ignored(
        "incremental.snapshot.allow.schema.changes",
        "Schema changes under a running snapshot.",
        "the log describes each table version itself",
    ),
    rejected(
        "scan.incremental.snapshot.backfill.skip",
        "Do not tag changes between a split's watermarks.",
        "changes between watermarks are always tagged, so that readers can normalize",
        "false",
    ),
    supported(
        "signal.enabled.channels",
        "signals.channels",
        words("source", "kafka", "file"),
        "source",
        "Where signals come from: a table at the source, a topic, a file. jmx and in-process need a Java process.",
    ),
    supported(
        "signal.data.collection",
        "signals.collection",
        TABLE_NAME,
        None,
        "Table of the channel source, with the columns id, type and data; what is inserted there is a signal. Its rows "
        "are captured only where the filters include it.",
    ),
    supported(
        "signal.poll.interval.ms", "signals.poll_interval_ms", integer(1), "5000", "How often channels are looked at."
    ),
    supported(
        "signal.kafka.topic",
        "signals.kafka_topic",
        TOPIC_PART,
        None,
        "Topic of the channel kafka, of one partition; records whose key is topic.prefix are signals. "
        "Missing: `<topic.prefix>-signal`.",
    ),
    supported(
        "signal.kafka.bootstrap.servers",
        "signals.kafka_servers",
        TEXT,
        None,
        "Brokers of that topic. Missing: bootstrap.servers.",
    ),
    supported(
        "signal.kafka.groupId",
        "signals.kafka_group",
        TEXT,
        "kafka-signal",
        "Consumer group of that topic, for its access rights; offsets are kept in the state topic.",
    ),
    supported(
        "signal.kafka.poll.timeout.ms", "signals.kafka_wait_ms", integer(0), "0", "How long one look waits for records."
    ),
    supported(
        "signal.consumer.*",
        "signals.consumer",
        ANY,
        None,
        "Kafka client of the channel kafka, over producer.override.*; librdkafka's names.",
    ),
    supported(
        "signal.file",
        "signals.file",
        TEXT,
        "file-signals.txt",
        'File of the channel file, one signal a line as {"id": …, "type": …, "data": {…}}; it is taken away when read.',
    ),
    supported(
        "notification.enabled.channels",
        "notifications.channels",
        words("sink", "log"),
        "",
        "Where notifications go: the topic, the log. jmx needs a Java process.",
    ),
    supported("notification.sink.topic.name", "notifications.topic", TOPIC_PART, None, "Topic of the channel sink."),
)
