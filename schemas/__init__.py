"""The contract between the halves: names, records and words that the producer writes and the consumer reads.

Nothing here imports ``producer`` or ``spark_consumer``, and those two never import each other.
"""
