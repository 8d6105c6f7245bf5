# The loop over the events of usual transactions, of which a binlog mostly consists.

cdef enum:
    EVENT_HEAD = 24  # of a packet: 5 bytes of its own, 19 of the event
    QUERY = 2
    XID = 16
    TABLE_MAP = 19
    ROWS_QUERY = 29
    WRITE_ROWS = 30
    UPDATE_ROWS = 31
    DELETE_ROWS = 32
    GTID = 33
    FULL_PACKET = 0xFFFFFF
    STATEMENT_END = 1
    STAMP = 7  # bytes of a commit time; the highest bit says that the original one follows
    BEGIN_FIELDS = 9
    ROWS_FIELDS = 12
    COMMIT_FIELDS = 4
    LARGE = 4096  # zlib is faster from here on, and releases the GIL

cdef uint32_t _CRC_RESIDUE = 0x2144DF1C
cdef uint64_t _UNKNOWN_STAMP = (<uint64_t> 1 << 55) - 1
cdef object _new_tuple = tuple.__new__


cdef inline Py_ssize_t least_body(int kind) noexcept:
    """Return the least size of the body of an event; -1: the event is declined."""
    if kind == TABLE_MAP or WRITE_ROWS <= kind <= DELETE_ROWS:
        return 10  # table id, flags, length of the extra data
    if kind == GTID:
        return 42  # flags, source, number, type, two clocks
    if kind == QUERY:
        return 13  # thread, time, lengths, error
    if kind == XID:
        return 8
    return 1 if kind == ROWS_QUERY else -1


cdef inline bint is_begin(const unsigned char *body, Py_ssize_t size) noexcept:
    """Return whether the statement of a QUERY event is BEGIN."""
    cdef Py_ssize_t text = 13 + (body[11] | body[12] << 8) + body[8] + 1
    return size - text == 5 and not memcmp(body + text, b"BEGIN", 5)


cdef inline int64_t commit_time(const unsigned char *stamp, Py_ssize_t size) noexcept:
    """Return the original commit time in microseconds, 0 if it is not known; -1: the event is declined."""
    cdef uint64_t time
    if size < STAMP:
        return 0
    time = number_of_7(stamp)
    if time >> 55:
        if size < 2 * STAMP:
            return -1
        time = number_of_7(stamp + STAMP)
    return 0 if time == _UNKNOWN_STAMP else <int64_t> time


cdef type event_type(type event, int fields):
    if not issubclass(event, tuple) or len(event._fields) != fields:
        raise ValueError(f"another {event.__name__}")
    return event


@cython.final
cdef class PacketParser:
    cdef type begin_event
    cdef type rows_event
    cdef type commit_event
    cdef tuple ops
    cdef Py_ssize_t most_tables
    cdef bint verify

    def __cinit__(self, type begin, type rows, type commit, *, tuple ops not None, Py_ssize_t most_tables, verify):
        if len(ops) != 3:
            raise ValueError("other operations")
        self.begin_event = event_type(begin, BEGIN_FIELDS)
        self.rows_event = event_type(rows, ROWS_FIELDS)
        self.commit_event = event_type(commit, COMMIT_FIELDS)
        self.ops, self.most_tables, self.verify = ops, most_tables, verify

    cdef inline bint _is_whole(self, bytes data, Py_ssize_t start, Py_ssize_t size, int crc) except -1:
        """Return whether the checksum of an event is right, or need not be."""
        if not self.verify or not crc:
            return True
        if size < LARGE:
            return crc32(<const unsigned char *> PyBytes_AS_STRING(data) + start, size) == _CRC_RESIDUE
        return crc32_of_zlib(data[start : start + size]) == _CRC_RESIDUE

    def parse(
        self, bytes data not None, Py_ssize_t at, uint64_t pos, int64_t payload_pos, int crc, str file not None,
        dict tables not None, dict definitions not None, transaction, list events not None, query
    ):
        cdef const unsigned char *bytes_of = <const unsigned char *> PyBytes_AS_STRING(data)
        cdef const unsigned char *packet
        cdef Py_ssize_t limit = PyBytes_GET_SIZE(data), size, body, stop, least, start = 0, extra
        cdef uint32_t log_pos
        cdef uint64_t begin, end
        cdef int kind
        cdef bytes head
        cdef PyObject *found
        cdef set changed = transaction.changed
        cdef dict sources = transaction.sources
        cdef int64_t number = transaction.number, sequence, time
        cdef bint is_open = transaction.is_open
        gtid, xid = transaction.current, transaction.xid
        begin_pos, commit_ts_us = transaction.begin_pos, transaction.commit_ts_us
        while 0 <= at <= limit - EVENT_HEAD:
            packet = bytes_of + at
            kind = packet[9]
            size = number_of_4(packet + 14)
            body = packet[0] | packet[1] << 8 | packet[2] << 16
            stop = at + 5 + size
            least = least_body(kind)
            if (
                least < 0
                or packet[4] != 0
                or body != size + 1
                or body == FULL_PACKET
                or stop > limit
                or size < EVENT_HEAD - 5 + least + crc
            ):
                break
            log_pos = number_of_4(packet + 18)
            begin = end = pos
            if log_pos:
                end = pos + size
                if <uint32_t> (end & 0xFFFFFFFFU) != log_pos:
                    break
            elif payload_pos >= 0:
                begin = payload_pos
            if kind == TABLE_MAP:
                found = PyDict_GetItemWithError(definitions, data[at + 30 : stop - crc])
                if found == NULL or not self._is_whole(data, at + 5, size, crc):
                    break
                tables[data[at + 24 : at + 30]] = <object> found
            elif WRITE_ROWS <= kind <= DELETE_ROWS:
                found = PyDict_GetItemWithError(tables, data[at + 24 : at + 30])
                if found == NULL:
                    break
                cached = <object> found
                if cached is not None:
                    # The first two bytes are the length of the extra data, which partitioned tables have.
                    head = <bytes?> (cached.double if kind == UPDATE_ROWS else cached.single)
                    extra = packet[32] | packet[33] << 8
                    start = at + 32 + extra + PyBytes_GET_SIZE(head) - 2
                    if (
                        extra < 2
                        or start > limit
                        or PyBytes_GET_SIZE(head) <= 2
                        or memcmp(packet + 32 + extra, PyBytes_AS_STRING(head) + 2, PyBytes_GET_SIZE(head) - 2)
                    ):
                        break
                if not self._is_whole(data, at + 5, size, crc):
                    break
                number += 1
                if cached is not None:
                    changed.add(cached)
                    events.append(
                        _new_tuple(
                            self.rows_event,
                            (
                                self.ops[kind - WRITE_ROWS], cached.table, data, start, stop - crc, file, begin, end,
                                number_of_4(packet + 5), number_of_4(packet + 10), query, number,
                            ),
                        )
                    )
                if query is not None and packet[30] & STATEMENT_END:
                    query = None
            elif kind == GTID:
                sequence = <int64_t> (number_of_4(packet + 41) | <uint64_t> number_of_4(packet + 45) << 32)
                time = commit_time(packet + 66, size - 61 - crc)
                if gtid is not None or sequence < 0 or time < 0 or len(tables) > self.most_tables:
                    break
                found = PyDict_GetItemWithError(sources, data[at + 25 : at + 41])
                if found == NULL or not self._is_whole(data, at + 5, size, crc):
                    break
                gtid = f"{<str?> <object> found}:{sequence}"
                number, query, begin_pos, commit_ts_us = 0, None, begin, time
            elif kind == QUERY:
                if (
                    gtid is None
                    or is_open
                    or not is_begin(packet + 24, size - 19 - crc)
                    or not self._is_whole(data, at + 5, size, crc)
                ):
                    break
                is_open, xid = True, ""
                changed.clear()
                events.append(
                    _new_tuple(
                        self.begin_event,
                        (
                            gtid, file, begin_pos, end, number_of_4(packet + 5), commit_ts_us, number_of_4(packet + 24),
                            number_of_4(packet + 10), "",
                        ),
                    )
                )
            elif kind == XID:
                if gtid is None or not is_open or not self._is_whole(data, at + 5, size, crc):
                    break
                events.append(_new_tuple(self.commit_event, (gtid, file, end, number_of_4(packet + 5))))
                gtid, is_open, xid = None, False, ""
                changed.clear()
            else:
                if not self._is_whole(data, at + 5, size, crc):
                    break
                query = data[at + 25 : stop - crc].decode("utf-8", "replace")
            pos = end
            at = stop
        transaction.number, transaction.begin_pos, transaction.commit_ts_us = number, begin_pos, commit_ts_us
        transaction.is_open, transaction.current, transaction.xid = is_open, gtid, xid
        return at, pos, query
