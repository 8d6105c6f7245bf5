# The columns of a table version, and the loop over the row packets of a result set.

cdef struct Span:
    Py_ssize_t start
    Py_ssize_t end


cdef struct KeyPart:
    const unsigned char *head
    Py_ssize_t head_size
    int column
    PyObject *call  # makes the piece, if it is not that of the row
    const unsigned char *null
    Py_ssize_t null_size


cdef class Rows:
    """The columns of a row in the order they are read, and those of the key."""

    cdef Column *columns
    cdef Span *pieces
    cdef Span *values  # by offset, after their length; before 0 for NULL
    cdef KeyPart *parts
    cdef int count
    cdef int part_count
    cdef Output row
    cdef Output key
    cdef Output text  # of one value
    cdef bytes row_end
    cdef bytes key_start
    cdef bytes key_end
    cdef list _kept  # what the structs point to

    def __cinit__(self, plan):
        cdef int i
        columns, key = plan.columns, plan.key
        self._kept = [plan]
        self.row_end, self.key_start, self.key_end = plan.row_end, plan.key_start, plan.key_end
        self.count, self.part_count = len(columns), len(key)
        self.columns = <Column *> PyMem_Calloc(self.count + 1, sizeof(Column))
        self.pieces = <Span *> PyMem_Calloc(self.count + 1, sizeof(Span))
        self.values = <Span *> PyMem_Calloc(self.count + 1, sizeof(Span))
        self.parts = <KeyPart *> PyMem_Calloc(self.part_count + 1, sizeof(KeyPart))
        if self.columns == NULL or self.pieces == NULL or self.values == NULL or self.parts == NULL:
            raise MemoryError()
        for i in range(self.count):
            self._set_column(&self.columns[i], columns[i])
        for i in range(self.part_count):
            head, column, piece, null = key[i]
            if not 0 <= column < self.count:
                raise ValueError("a key column that is not there")
            self.parts[i].head, self.parts[i].head_size = self._bytes(head), len(head)
            self.parts[i].column = column
            if piece is not None:
                self.parts[i].call = <PyObject *> piece
                self.parts[i].null, self.parts[i].null_size = self._bytes(null), len(null)

    def __dealloc__(self):
        PyMem_Free(self.columns)
        PyMem_Free(self.pieces)
        PyMem_Free(self.values)
        PyMem_Free(self.parts)
        free(self.row.data)
        free(self.key.data)
        free(self.text.data)

    cdef const unsigned char *_bytes(self, bytes data) except NULL:
        self._kept.append(data)
        return <const unsigned char *> PyBytes_AS_STRING(data)

    cdef int _set_column(self, Column *column, given) except -1:
        fast = given.fast
        column.kind = _KINDS[fast.kind]
        column.nullable, column.avro = given.nullable, given.avro
        column.head, column.head_size = self._bytes(given.head), len(given.head)
        column.tag, column.tag_size = self._bytes(given.tag), len(given.tag)
        column.null, column.null_size = self._bytes(given.null), len(given.null)
        if given.zero is not None:
            column.zero, column.zero_size = self._bytes(given.zero), len(given.zero)
        column.unit, column.adjust = fast.unit, fast.adjust
        column.exact, column.scale = fast.exact, fast.scale
        column.width, column.prefix, column.signed = given.width, given.prefix, fast.signed
        column.whole_digits, column.least = fast.whole_digits, fast.least
        column.labels = <PyObject *> given.labels
        if given.call is not None and not given.may_replace:
            column.call = <PyObject *> given.call
        return 0

    cdef int _value(self, const Column *column, const unsigned char *data, Py_ssize_t size) except -1:
        """Append the piece of a value of the text protocol."""
        cdef Py_ssize_t start = self.row.size
        cdef int done = DECLINED
        if column.kind != CALL:
            done = value_of_result_set(&self.row, column, data, size)
        if done != DONE:
            self.row.size = start
            done = put_call(&self.row, column.call, data, size)
        return done

    cdef int read_packet(self, const unsigned char *data, Py_ssize_t size) except -1:
        """Append the row of a packet: DONE, or DECLINED for whatever is not a usual row."""
        cdef Py_ssize_t at = 0, length, width
        cdef int i, k
        cdef const Column *column
        for i in range(self.count):
            column = &self.columns[i]
            if at >= size:
                return DECLINED
            length = data[at]
            at += 1
            if length > 250:
                if length == 251:
                    if not column.nullable:
                        return DECLINED
                    self.values[i].start = -1
                    reserve(&self.row, column.head_size + column.null_size)
                    put(&self.row, column.head, column.head_size)
                    self.pieces[i].start = self.row.size
                    put(&self.row, column.null, column.null_size)
                    self.pieces[i].end = self.row.size
                    continue
                if length > 253:
                    return DECLINED
                width = length - 250
                if at + width > size:
                    return DECLINED
                length = 0
                for k in range(width):
                    length |= <Py_ssize_t> data[at + k] << 8 * k
                at += width
            if length > size - at:
                return DECLINED
            self.values[i].start, self.values[i].end = at, at + length
            reserve(&self.row, column.head_size + column.tag_size + column.zero_size + 6 * length + 64)
            put(&self.row, column.head, column.head_size)
            self.pieces[i].start = self.row.size
            if self._value(column, data + at, length) != DONE:
                return DECLINED
            self.pieces[i].end = self.row.size
            at += length
        if at != size:
            return DECLINED
        reserve(&self.row, PyBytes_GET_SIZE(self.row_end))
        put_object(&self.row, self.row_end)
        return DONE

    cdef Py_ssize_t read_image(self, const unsigned char *data, Py_ssize_t at, Py_ssize_t end) except -1:
        """Append the row image at an offset, which begins with the bitmap of its NULLs; return its end, 0 if declined."""
        cdef const unsigned char *nulls = data + at
        cdef const Column *column
        cdef Py_ssize_t size, start
        cdef int i, k, done
        at += (self.count + 7) // 8
        if at > end:
            return 0
        for i in range(self.count):
            column = &self.columns[i]
            if nulls[i >> 3] >> (i & 7) & 1:
                if not column.nullable:
                    return 0
                self.values[i].start = -1
                if column.kind == SKIP:
                    continue
                reserve(&self.row, column.head_size + column.null_size)
                put(&self.row, column.head, column.head_size)
                self.pieces[i].start = self.row.size
                put(&self.row, column.null, column.null_size)
                self.pieces[i].end = self.row.size
                continue
            if column.width:
                size = column.width
            else:
                if column.prefix > end - at:
                    return 0
                size = column.prefix
                for k in range(column.prefix):
                    size += <Py_ssize_t> data[at + k] << 8 * k
            if size > end - at:
                return 0
            self.values[i].start, self.values[i].end = at + column.prefix, at + size
            if column.kind == SKIP:
                at += size
                continue
            reserve(&self.row, column.head_size + column.tag_size + column.zero_size + 6 * size + 64)
            put(&self.row, column.head, column.head_size)
            start = self.pieces[i].start = self.row.size
            done = DECLINED
            if column.kind == LABEL:
                done = put_label(&self.row, column, data + at)
            elif column.kind == DOUBLE:
                done = put_double(&self.row, column, data + at)
            elif column.kind == JSON:
                done = put_binary_json(
                    &self.row, &self.text, column, data + at + column.prefix, size - column.prefix
                )
            elif column.kind != CALL:
                done = value_of_image(&self.row, column, data + at + column.prefix, size - column.prefix)
            if done != DONE:
                self.row.size = start
                done = put_call(&self.row, column.call, data + at + column.prefix, size - column.prefix)
                if done != DONE:
                    return 0
            self.pieces[i].end = self.row.size
            at += size
        reserve(&self.row, PyBytes_GET_SIZE(self.row_end))
        put_object(&self.row, self.row_end)
        return at

    cdef Py_ssize_t find_values(self, const unsigned char *data, Py_ssize_t at, Py_ssize_t end) noexcept:
        """Find the values of the row image at an offset, and write nothing; return its end, 0 if declined."""
        cdef const unsigned char *nulls = data + at
        cdef const Column *column
        cdef Py_ssize_t size
        cdef int i, k
        at += (self.count + 7) // 8
        if at > end:
            return 0
        for i in range(self.count):
            column = &self.columns[i]
            if nulls[i >> 3] >> (i & 7) & 1:
                if not column.nullable:
                    return 0
                self.values[i].start = -1
                continue
            size = column.width
            if not size:
                if column.prefix > end - at:
                    return 0
                size = column.prefix
                for k in range(column.prefix):
                    size += <Py_ssize_t> data[at + k] << 8 * k
            if size > end - at:
                return 0
            self.values[i].start, self.values[i].end = at + column.prefix, at + size
            at += size
        return at

    cdef int write_key(self, const unsigned char *data) except -1:
        """Write the key of the row that was read last, from these bytes: DONE or DECLINED."""
        cdef int i
        cdef Py_ssize_t size
        cdef Span *piece
        cdef Span *value
        cdef KeyPart *part
        self.key.size = 0
        reserve(&self.key, PyBytes_GET_SIZE(self.key_start) + PyBytes_GET_SIZE(self.key_end))
        put_object(&self.key, self.key_start)
        for i in range(self.part_count):
            part = &self.parts[i]
            piece = &self.pieces[part.column]
            size = part.null_size if part.call != NULL else piece.end - piece.start
            reserve(&self.key, part.head_size + size + PyBytes_GET_SIZE(self.key_end))
            put(&self.key, part.head, part.head_size)
            if part.call == NULL:
                put(&self.key, self.row.data + piece.start, size)
                continue
            value = &self.values[part.column]
            if value.start < 0:
                put(&self.key, part.null, part.null_size)
            elif put_call(&self.key, part.call, data + value.start, value.end - value.start) != DONE:
                return DECLINED
            reserve(&self.key, PyBytes_GET_SIZE(self.key_end))
        put_object(&self.key, self.key_end)
        return DONE


cdef inline void put_object(Output *out, bytes data) noexcept:
    put(out, <const unsigned char *> PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))


cdef inline bytes taken(Output *out):
    return PyBytes_FromStringAndSize(<const char *> out.data, out.size)


cdef enum:
    ROOM_BYTES = 65536
    MOST_ROOM_BYTES = 8388608  # that are reserved before the rows are known


cdef class PacketEncoder:
    cdef Rows rows
    cdef bytes prefix
    cdef bint busy
    cdef double growth  # bytes of records for each byte of packets, of the last call

    def __cinit__(self, plan, bytes prefix):
        self.rows = Rows(plan)
        self.prefix = prefix

    def encode(self, const unsigned char[::1] data, Py_ssize_t start, Py_ssize_t end, bytes suffix, Records records):
        if start < 0 or end > data.shape[0]:
            raise IndexError("beyond the buffer")
        if self.busy:
            # A function of a column let another thread run: the buffers hold a row of this one.
            raise RuntimeError("an encoder is used by two threads")
        self.busy = True
        try:
            return self._encode(data, start, end, suffix, records)
        finally:
            self.busy = False

    cdef tuple _encode(
        self, const unsigned char[::1] data, Py_ssize_t start, Py_ssize_t end, bytes suffix, Records records
    ):
        cdef Rows rows = self.rows
        cdef Py_ssize_t at = start, size, prefix_size = PyBytes_GET_SIZE(self.prefix)
        cdef uint64_t checksum = 0
        cdef bint first = not records.data.size
        if first and self.growth:
            make_room(&records.data, ROOM_BYTES + <Py_ssize_t> min((end - start) * self.growth, <double> MOST_ROOM_BYTES))
        while end - at >= 4:
            size = data[at] | <Py_ssize_t> data[at + 1] << 8 | <Py_ssize_t> data[at + 2] << 16
            if size > end - at - 4:
                break
            if size == 0 or size == 0xFFFFFF or data[at + 4] >= 254:
                return at, checksum, size + 4
            rows.row.size = 0
            reserve(&rows.row, prefix_size)
            put_object(&rows.row, self.prefix)
            if rows.read_packet(&data[at + 4], size) != DONE or rows.write_key(&data[at + 4]) != DONE:
                return at, checksum, size + 4
            checksum += crc32(rows.row.data + prefix_size, rows.row.size - prefix_size)
            reserve(&rows.row, PyBytes_GET_SIZE(suffix))
            put_object(&rows.row, suffix)
            records.add(rows.key.data, rows.key.size, rows.row.data, rows.row.size)
            at += size + 4
        if first and at - start >= ROOM_BYTES:
            self.growth = <double> records.data.size / (at - start)
        return at, checksum, 0
