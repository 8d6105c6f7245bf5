# The loop over the row images of a rows event.

cdef struct RawPart:
    int column
    PyObject *call  # from the bytes of a value to that of the raw key; NULL: an integer


cdef inline object number_of_image(const Column *column, const unsigned char *data):
    cdef uint64_t bits = integer_bits(column, data)
    return <int64_t> bits if column.signed else bits


cdef class ImageEncoder:
    cdef Rows rows
    cdef bytes prefix
    cdef bytes between
    cdef bint pairs
    cdef bint deletes
    cdef bint tombstones
    cdef bint skips
    cdef bint avro
    cdef bint busy
    cdef Output old_key
    cdef RawPart *raw
    cdef int raw_count
    cdef object _kept

    def __cinit__(self, Rows rows, raw_key, bytes prefix, bytes between, *, pairs, deletes, tombstones, skips, avro):
        cdef int i
        self.rows, self.prefix, self.between = rows, prefix, between
        self.pairs, self.deletes, self.tombstones = pairs, deletes, tombstones
        self.skips, self.avro = skips, avro
        self._kept = raw_key
        self.raw_count = len(raw_key)
        self.raw = <RawPart *> PyMem_Calloc(self.raw_count + 1, sizeof(RawPart))
        if self.raw == NULL:
            raise MemoryError()
        for i in range(self.raw_count):
            column, call = raw_key[i]
            if not 0 <= column < rows.count or (call is None and not 1 <= rows.columns[<int> column].width <= 8):
                raise ValueError("a column that is not there, or no integer")
            self.raw[i].column = column
            if call is not None:
                self.raw[i].call = <PyObject *> call

    def __dealloc__(self):
        PyMem_Free(self.old_key.data)
        PyMem_Free(self.raw)

    def encode(self, bytes data, Py_ssize_t start, Py_ssize_t end, bytes head, bytes tail, int64_t row, list keys):
        if start < 0 or end > PyBytes_GET_SIZE(data) or self.busy:
            return None
        self.busy = True
        try:
            return self._encode(<const unsigned char *> PyBytes_AS_STRING(data), start, end, head, tail, row, keys)
        finally:
            self.busy = False

    cdef tuple _raw_key(self, const unsigned char *data):
        """Return the raw key of the image that was read last; None if it is declined."""
        cdef list found = []
        cdef RawPart *part
        cdef Span *value
        cdef int i
        for i in range(self.raw_count):
            part = &self.raw[i]
            value = &self.rows.values[part.column]
            if value.start < 0:
                found.append(None)
            elif part.call == NULL:
                found.append(number_of_image(&self.rows.columns[part.column], data + value.start))
            else:
                piece = PyBytes_FromStringAndSize(<const char *> data + value.start, value.end - value.start)
                try:
                    found.append((<object> part.call)(piece))
                except Exception:
                    return None
        return tuple(found)

    cdef object _encode(
        self, const unsigned char *data, Py_ssize_t at, Py_ssize_t end, bytes head, bytes tail, int64_t row, list keys
    ):
        cdef Rows rows = self.rows
        cdef Output *out = &rows.row
        cdef Py_ssize_t first, second, prefix = PyBytes_GET_SIZE(self.prefix), between = PyBytes_GET_SIZE(self.between)
        cdef list records = []
        cdef bytes key
        cdef tuple raw = None, old_raw = None
        while at < end:
            out.size = 0
            reserve(out, prefix)
            put_object(out, self.prefix)
            at = rows.read_image(data, at, end)
            if not at:
                return None
            rows.write_key()
            if keys is not None:
                raw = self._raw_key(data)
                if raw is None:
                    return None
            first = out.size
            reserve(out, between)
            put_object(out, self.between)
            if self.pairs:
                old_raw = raw
                self.old_key.size = 0
                reserve(&self.old_key, rows.key.size)
                put(&self.old_key, rows.key.data, rows.key.size)
                at = rows.read_image(data, at, end)
                if not at:
                    return None
                rows.write_key()
                if rows.key.size != self.old_key.size or memcmp(rows.key.data, self.old_key.data, rows.key.size):
                    return None
                if keys is not None:
                    raw = self._raw_key(data)
                    if raw is None:
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
            if keys is not None:
                keys.append((raw, None) if self.deletes else (old_raw, raw))
            row += 1
        return records, row
