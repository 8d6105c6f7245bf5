"""Properties of the snapshot, of signals and of notifications."""

from __future__ import annotations

from typing import Final

from producer.config.property import (
    ANY,
    BOOLEAN,
    EXPRESSIONS,
    TABLE_NAME,
    TEXT,
    TOPIC_PART,
    Property,
    accepted,
    decimal,
    honoured,
    one_of,
    refused,
    whole,
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
    honoured(
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
            refused=("custom", "never"),
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
    honoured(
        "snapshot.max.threads", "snapshot.max_threads", whole(1, 256), "2", "Snapshot readers at work.", debezium="1"
    ),
    honoured(
        "incremental.snapshot.chunk.size",
        "snapshot.chunk_size",
        whole(1),
        "8192",
        "Rows of one split; for keys cut by arithmetic the number of key values times their density.",
        aliases=("scan.incremental.snapshot.chunk.size",),
        debezium="1024",
    ),
    honoured(
        "chunk-key.even-distribution.factor.upper-bound",
        "snapshot.even_upper",
        decimal(1),
        "100.0",
        "Greatest (max-min+1)/rows for which a table is cut by arithmetic; Flink CDC has 1000.",
        aliases=("split-key.even-distribution.factor.upper-bound",),
    ),
    honoured(
        "chunk-key.even-distribution.factor.lower-bound",
        "snapshot.even_lower",
        decimal(0),
        "0.05",
        "Least (max-min+1)/rows for which a table is cut by arithmetic.",
        aliases=("split-key.even-distribution.factor.lower-bound",),
    ),
    honoured(
        "snapshot.include.collection.list",
        "snapshot.include",
        EXPRESSIONS,
        "",
        "Tables that are read first; the others are only followed in the log. Empty: every captured table.",
    ),
    refused(
        "snapshot.select.statement.overrides",
        "Tables with a SELECT of their own.",
        _WHOLE,
        "",
    ),
    refused("snapshot.select.statement.overrides.*", "The SELECT of a table.", _WHOLE),
    refused("snapshot.query.mode", "Who makes the SELECT.", "custom queries are Java classes", "select_all"),
    accepted("snapshot.query.mode.custom.name", "Java class of the query.", _NO_JAVA),
    accepted("snapshot.mode.custom.name", "Java class of the mode.", _NO_JAVA),
    accepted("snapshot.locking.mode", "Which locks are taken.", _NO_LOCK, harmless=("none",)),
    accepted("snapshot.locking.mode.custom.name", "Java class of the locks.", _NO_LOCK),
    accepted("snapshot.lock.timeout.ms", "Wait for locks.", _NO_LOCK),
    accepted("snapshot.fetch.size", "Rows fetched at once.", "rows are taken as they arrive, whatever the number"),
    accepted("snapshot.delay.ms", "Wait before the snapshot.", "the snapshot starts at once", harmless=("0",)),
    accepted("snapshot.max.threads.multiplier", "Chunks for each thread.", "incremental.snapshot.chunk.size decides"),
    accepted(
        "legacy.snapshot.max.threads", "One thread for each table.", "tables are read in splits", harmless=("false",)
    ),
    accepted(
        "snapshot.tables.order.by.row.count",
        "Order of tables.",
        "tables are read in order of name",
        harmless=("disabled",),
    ),
    accepted("min.row.count.to.stream.results", "When to stream results.", "results are always streamed"),
    honoured(
        "snapshot.mode.configuration.based.snapshot.data",
        "snapshot.based_data",
        BOOLEAN,
        "false",
        "With snapshot.mode=configuration_based: read the tables, again at each start.",
    ),
    honoured(
        "snapshot.mode.configuration.based.start.stream",
        "snapshot.based_stream",
        BOOLEAN,
        "false",
        "With that mode: follow the log.",
    ),
    honoured(
        "snapshot.mode.configuration.based.snapshot.on.data.error",
        "snapshot.based_on_data_error",
        BOOLEAN,
        "false",
        "With that mode: read the tables again where the log that follows the stored position is gone.",
    ),
    accepted("snapshot.mode.configuration.based.snapshot.schema", "Read the definitions.", _NO_HISTORY),
    accepted("snapshot.mode.configuration.based.snapshot.on.schema.error", "Read them again.", _NO_HISTORY),
    accepted(
        "incremental.snapshot.watermarking.strategy",
        "How the source table of signals is written.",
        "watermarks are log positions; nothing is written to the source",
    ),
    accepted(
        "incremental.snapshot.allow.schema.changes",
        "Schema changes under a running snapshot.",
        "the log describes each table version itself",
    ),
    refused(
        "scan.incremental.snapshot.backfill.skip",
        "Do not tag changes between a split's watermarks.",
        "changes between watermarks are always tagged, so that readers can normalize",
        "false",
    ),
    honoured(
        "signal.enabled.channels",
        "signals.channels",
        words("source", "kafka", "file"),
        "source",
        "Where signals come from: a table at the source, a topic, a file. jmx and in-process need a Java process.",
    ),
    honoured(
        "signal.data.collection",
        "signals.collection",
        TABLE_NAME,
        None,
        "Table of the channel source, with the columns id, type and data; what is inserted there is a signal. Its rows "
        "are captured only where the filters include it.",
    ),
    honoured(
        "signal.poll.interval.ms", "signals.poll_interval_ms", whole(1), "5000", "How often channels are looked at."
    ),
    honoured(
        "signal.kafka.topic",
        "signals.kafka_topic",
        TOPIC_PART,
        None,
        "Topic of the channel kafka, of one partition; records whose key is topic.prefix are signals. "
        "Missing: `<topic.prefix>-signal`.",
    ),
    honoured(
        "signal.kafka.bootstrap.servers",
        "signals.kafka_servers",
        TEXT,
        None,
        "Brokers of that topic. Missing: bootstrap.servers.",
    ),
    honoured(
        "signal.kafka.groupId",
        "signals.kafka_group",
        TEXT,
        "kafka-signal",
        "Consumer group of that topic, for its access rights; offsets are kept in the state topic.",
    ),
    honoured(
        "signal.kafka.poll.timeout.ms", "signals.kafka_wait_ms", whole(0), "0", "How long one look waits for records."
    ),
    honoured(
        "signal.consumer.*",
        "signals.consumer",
        ANY,
        None,
        "Kafka client of the channel kafka, over producer.override.*; librdkafka's names.",
    ),
    honoured(
        "signal.file",
        "signals.file",
        TEXT,
        "file-signals.txt",
        'File of the channel file, one signal a line as {"id": …, "type": …, "data": {…}}; it is taken away when read.',
    ),
    honoured(
        "notification.enabled.channels",
        "notifications.channels",
        words("sink", "log"),
        "",
        "Where notifications go: the topic, the log. jmx needs a Java process.",
    ),
    honoured("notification.sink.topic.name", "notifications.topic", TOPIC_PART, None, "Topic of the channel sink."),
)
