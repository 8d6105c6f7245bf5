# The loop over TABLE_MAP and rows events, of which a binlog mostly consists.

cdef enum:
    EVENT_HEAD = 24  # of a packet: 5 bytes of its own, 19 of the event
    LEAST_BODY = 10  # table id, flags, length of the extra data
    TABLE_MAP = 19
    WRITE_ROWS = 30
    UPDATE_ROWS = 31
    DELETE_ROWS = 32
    FULL_PACKET = 0xFFFFFF
    STATEMENT_END = 1
    EVENT_FIELDS = 12
    LARGE = 4096  # zlib is faster from here on, and releases the GIL

cdef uint32_t _CRC_RESIDUE = 0x2144DF1C
cdef object _new_tuple = tuple.__new__


cdef inline uint32_t number_of_4(const unsigned char *data) noexcept:
    return data[0] | <uint32_t> data[1] << 8 | <uint32_t> data[2] << 16 | <uint32_t> data[3] << 24


@cython.final
cdef class RowsEventParser:
    cdef type event
    cdef tuple ops
    cdef bint verify

    def __cinit__(self, type event, tuple ops, *, verify):
        if not issubclass(event, tuple) or len(event._fields) != EVENT_FIELDS or len(ops) != 3:
            raise ValueError("another rows event")
        self.event, self.ops, self.verify = event, ops, verify

    cdef object _event(
        self, int kind, cached, bytes data, Py_ssize_t start, Py_ssize_t stop, file, begin, end, uint32_t ts,
        uint32_t server, query, number
    ):
        cdef tuple fields = (
            self.ops[kind - WRITE_ROWS], cached.table, data, start, stop, file, begin, end, ts, server, query, number
        )
        return _new_tuple(self.event, fields)

    cdef inline bint _is_whole(self, bytes data, Py_ssize_t start, Py_ssize_t size, int crc) except -1:
        """Return whether the checksum of an event is right, or need not be."""
        if not self.verify or not crc:
            return True
        if size < LARGE:
            return crc32(<const unsigned char *> PyBytes_AS_STRING(data) + start, size) == _CRC_RESIDUE
        return crc32_of_zlib(data[start : start + size]) == _CRC_RESIDUE

    def parse(
        self, bytes data not None, Py_ssize_t at, uint64_t pos, int64_t payload_pos, int crc, str file not None,
        dict tables not None, dict definitions not None, set changed not None, list events not None, int64_t number,
        query
    ):
        cdef const unsigned char *bytes_of = <const unsigned char *> PyBytes_AS_STRING(data)
        cdef const unsigned char *packet
        cdef Py_ssize_t limit = PyBytes_GET_SIZE(data), size, body, stop, start = 0, extra
        cdef uint32_t log_pos
        cdef uint64_t begin, end
        cdef int kind
        cdef bytes head
        cdef PyObject *found
        while 0 <= at <= limit - EVENT_HEAD:
            packet = bytes_of + at
            kind = packet[9]
            size = number_of_4(packet + 14)
            body = packet[0] | packet[1] << 8 | packet[2] << 16
            stop = at + 5 + size
            if (
                not (kind == TABLE_MAP or WRITE_ROWS <= kind <= DELETE_ROWS)
                or packet[4] != 0
                or body != size + 1
                or body == FULL_PACKET
                or stop > limit
                or size < EVENT_HEAD - 5 + LEAST_BODY + crc
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
            else:
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
                if cached is not None:
                    changed.add(cached)
                    events.append(
                        self._event(
                            kind, cached, data, start, stop - crc, file, begin, end, number_of_4(packet + 5),
                            number_of_4(packet + 10), query, number + 1
                        )
                    )
                number += 1
                if query is not None and packet[30] & STATEMENT_END:
                    query = None
            pos = end
            at = stop
        return at, pos, number, query
