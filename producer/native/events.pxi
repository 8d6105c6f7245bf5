# The loop over the row images of a rows event.

cdef struct RawPart:
    int column
    PyObject *call  # from the bytes of a value to that of the raw key; NULL: an integer


cdef inline object number_of_image(const Column *column, const unsigned char *data):
    cdef uint64_t bits = integer_bits(column, data)
    return <int64_t> bits if column.signed else bits


cdef struct Text:
    const unsigned char *data
    Py_ssize_t size


cdef inline Text text_of(bytes data):
    cdef Text text
    text.data, text.size = <const unsigned char *> PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data)
    return text


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
    cdef object change
    cdef list changed  # the records of an event with a changed key
    cdef object _kept

    def __cinit__(
        self, Rows rows, raw_key, bytes prefix, bytes between, change, *, pairs, deletes, tombstones, skips, avro
    ):
        cdef int i
        self.change = change
        for i in range(rows.count):
            if not has_its_width(&rows.columns[i]):
                raise ValueError("a column of another width than its values have")
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
        free(self.old_key.data)
        PyMem_Free(self.raw)

    def encode(
        self, bytes data, Py_ssize_t start, Py_ssize_t end, bytes head, bytes tail, int64_t row, list keys, envelope
    ):
        cdef Records records = Records.__new__(Records)
        cdef Text first = text_of(head), last = text_of(tail)
        cdef int64_t after = self.append(data, start, end, &first, &last, row, keys, envelope, records)
        if after < 0:
            return None
        changed, self.changed = self.changed, None
        return records if changed is None else changed, after

    cdef int64_t append(
        self,
        bytes data,
        Py_ssize_t start,
        Py_ssize_t end,
        const Text *head,
        const Text *tail,
        int64_t row,
        list keys,
        envelope,
        Records records,
    ) except -2:
        """Append the records of an event; return the number after that of its last row, -1 if it is declined.

        Without an envelope a changed key is declined; else ``changed`` has all records of such an event, and the
        records have those before it. The records have some of those of a declined event.
        """
        if start < 0 or end > PyBytes_GET_SIZE(data) or self.busy:
            return -1
        self.busy = True
        self.changed = None
        try:
            return self._append(data, start, end, head, tail, row, keys, envelope, records)
        finally:
            self.busy = False

    def raw_keys(self, bytes data, Py_ssize_t start, Py_ssize_t end):
        if start < 0 or end > PyBytes_GET_SIZE(data) or self.busy:
            return None
        self.busy = True
        try:
            return self._raw_keys(<const unsigned char *> PyBytes_AS_STRING(data), start, end)
        finally:
            self.busy = False

    cdef int decide(
        self, bytes data, Py_ssize_t at, Py_ssize_t end, KeyCover cover, begin, int64_t *rows
    ) except -1:
        """Return the decision on the keys of an event, UNDECIDED if they differ; ``rows`` is set to its rows.

        The first column of the key decides, which must be an integer.
        """
        cdef int found
        if at < 0 or end > PyBytes_GET_SIZE(data) or self.busy or not self.raw_count or self.raw[0].call != NULL:
            return UNDECIDED
        self.busy = True
        try:
            found = self._decide(<const unsigned char *> PyBytes_AS_STRING(data), at, end, cover, begin, rows)
            return UNDECIDED if found < 0 else found
        finally:
            self.busy = False

    cdef int _decide(
        self, const unsigned char *data, Py_ssize_t at, Py_ssize_t end, KeyCover cover, begin, int64_t *rows
    ) except -2:
        """Return the decision on all keys; -1: there is none."""
        cdef const Column *column = &self.rows.columns[self.raw[0].column]
        cdef const Span *value = &self.rows.values[self.raw[0].column]
        cdef Py_ssize_t images = 0
        cdef int64_t key
        cdef int shared = -1, found
        while at < end:
            at = self.rows.find_values(data, at, end)
            if not at or value.start < 0:
                return -1
            key = <int64_t> integer_bits(column, data + value.start)
            if key < 0 and not column.signed:
                return -1  # it is greater than all that a cover knows
            found = cover.of(key, begin)
            if found == UNDECIDED or (found != shared and shared >= 0):
                return -1
            shared = found
            images += 1
        if self.pairs and images % 2:
            return -1
        rows[0] = images // 2 if self.pairs else images
        return shared

    cdef list _raw_keys(self, const unsigned char *data, Py_ssize_t at, Py_ssize_t end):
        cdef list found = []
        cdef tuple raw, old_raw
        while at < end:
            old_raw = None
            if self.pairs:
                at = self.rows.find_values(data, at, end)
                old_raw = self._raw_key(data) if at else None
                if old_raw is None:
                    return None
            at = self.rows.find_values(data, at, end)
            raw = self._raw_key(data) if at else None
            if raw is None:
                return None
            found.append((raw, None) if self.deletes else (old_raw, raw))
        return found

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

    cdef object _key_change(self, Py_ssize_t first, envelope, int64_t row, tuple images):
        """Return the record of the pair that was read last; ``first`` is the end of the old row. None: declined."""
        cdef Output *out = &self.rows.row
        cdef Py_ssize_t prefix = PyBytes_GET_SIZE(self.prefix), second = first + PyBytes_GET_SIZE(self.between)
        cdef const char *text = <const char *> out.data
        before = PyBytes_FromStringAndSize(text + prefix, first - prefix)
        after = PyBytes_FromStringAndSize(text + second, out.size - second)
        try:
            return self.change((before, after), (taken(&self.old_key), taken(&self.rows.key)), envelope, row, images)
        except Exception:
            return None

    cdef int64_t _append(
        self,
        bytes event,
        Py_ssize_t at,
        Py_ssize_t end,
        const Text *head,
        const Text *tail,
        int64_t row,
        list keys,
        envelope,
        Records records,
    ) except -2:
        cdef const unsigned char *data = <const unsigned char *> PyBytes_AS_STRING(event)
        cdef Rows rows = self.rows
        cdef Output *out = &rows.row
        cdef Py_ssize_t first, second, prefix = PyBytes_GET_SIZE(self.prefix), between = PyBytes_GET_SIZE(self.between)
        cdef Py_ssize_t old_image, new_image
        cdef list changed = None
        cdef tuple raw = None, old_raw = None
        while at < end:
            out.size = 0
            reserve(out, prefix)
            put_object(out, self.prefix)
            old_image = at
            at = rows.read_image(data, at, end)
            if not at:
                return -1
            if rows.write_key(data) != DONE:
                return -1
            if keys is not None:
                raw = self._raw_key(data)
                if raw is None:
                    return -1
            first = out.size
            reserve(out, between)
            put_object(out, self.between)
            if self.pairs:
                old_raw = raw
                self.old_key.size = 0
                reserve(&self.old_key, rows.key.size)
                put(&self.old_key, rows.key.data, rows.key.size)
                new_image = at
                at = rows.read_image(data, at, end)
                if not at:
                    return -1
                if rows.write_key(data) != DONE:
                    return -1
                if keys is not None:
                    raw = self._raw_key(data)
                    if raw is None:
                        return -1
                second = out.size - first - between
                if self.skips and second == first - prefix:
                    if not memcmp(out.data + prefix, out.data + first + between, second):
                        row += 1
                        continue
                if rows.key.size != self.old_key.size or memcmp(rows.key.data, self.old_key.data, rows.key.size):
                    if envelope is None:
                        return -1
                    change = self._key_change(first, envelope, row, (event, old_image, new_image, at))
                    if change is None:
                        return -1
                    if changed is None:
                        changed = list(records)
                    changed.append(change)
                    if keys is not None:
                        keys.append((old_raw, raw))
                    row += 1
                    continue
            reserve(out, head.size + tail.size + 24)
            put(out, head.data, head.size)
            if self.avro:
                put_varint(out, row)
            else:
                put_signed(out, row)
            put(out, tail.data, tail.size)
            if changed is not None:
                changed.append((taken(&rows.key), taken(out)))
            else:
                records.add(rows.key.data, rows.key.size, out.data, out.size)
                if self.tombstones:
                    records.add(rows.key.data, rows.key.size, NULL, -1)
            if keys is not None:
                keys.append((raw, None) if self.deletes else (old_raw, raw))
            row += 1
        self.changed = changed
        return row
