"""The contract between producer and consumer: what one writes to Kafka and the other reads.

- ``names``: control topics and record headers.
- ``table``: the schema of a table, in the schemas topic.
- ``connect``: Kafka Connect schemas, of which a table schema consists.
- ``watermark``: LOW, HIGH and END of a snapshot split, in the watermarks topic.
- ``sequence``: the order of the records of a key.
- ``rowkind``: ``op`` of a change event, and the row kinds of a changelog.

Nothing here imports the producer or the consumer, and those two never import each other.
"""
