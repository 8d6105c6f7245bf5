# The loop over the row images of a rows event.

cdef class ImageEncoder:
    cdef Rows rows
    cdef bytes prefix
    cdef bytes between
    cdef bint pairs
    cdef bint tombstones
    cdef bint skips
    cdef bint avro
    cdef bint busy
    cdef Output old_key

    def __cinit__(self, Rows rows, bytes prefix, bytes between, *, pairs, tombstones, skips, avro):
        self.rows, self.prefix, self.between = rows, prefix, between
        self.pairs, self.tombstones, self.skips, self.avro = pairs, tombstones, skips, avro

    def __dealloc__(self):
        PyMem_Free(self.old_key.data)

    def encode(self, bytes data, Py_ssize_t start, Py_ssize_t end, bytes head, bytes tail, int64_t row):
        if start < 0 or end > PyBytes_GET_SIZE(data) or self.busy:
            return None
        self.busy = True
        try:
            return self._encode(<const unsigned char *> PyBytes_AS_STRING(data), start, end, head, tail, row)
        finally:
            self.busy = False

    cdef object _encode(
        self, const unsigned char *data, Py_ssize_t at, Py_ssize_t end, bytes head, bytes tail, int64_t row
    ):
        cdef Rows rows = self.rows
        cdef Output *out = &rows.row
        cdef Py_ssize_t first, second, prefix = PyBytes_GET_SIZE(self.prefix), between = PyBytes_GET_SIZE(self.between)
        cdef list records = []
        cdef bytes key
        while at < end:
            out.size = 0
            reserve(out, prefix)
            put_object(out, self.prefix)
            at = rows.read_image(data, at, end)
            if not at:
                return None
            rows.write_key()
            first = out.size
            reserve(out, between)
            put_object(out, self.between)
            if self.pairs:
                self.old_key.size = 0
                reserve(&self.old_key, rows.key.size)
                put(&self.old_key, rows.key.data, rows.key.size)
                at = rows.read_image(data, at, end)
                if not at:
                    return None
                rows.write_key()
                if rows.key.size != self.old_key.size or memcmp(rows.key.data, self.old_key.data, rows.key.size):
                    return None
                second = out.size - first - between
                if self.skips and second == first - prefix:
                    if not memcmp(out.data + prefix, out.data + first + between, second):
                        row += 1
                        continue
            reserve(out, PyBytes_GET_SIZE(head) + PyBytes_GET_SIZE(tail) + 24)
            put_object(out, head)
            if self.avro:
                put_varint(out, row)
            else:
                put_signed(out, row)
            put_object(out, tail)
            key = taken(&rows.key)
            records.append((key, taken(out)))
            if self.tombstones:
                records.append((key, None))
            row += 1
        return records, row
