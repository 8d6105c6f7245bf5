# From the events of usual transactions to librdkafka, without Python objects for envelopes, records and headers.

cdef extern from "time.h" nogil:
    cdef struct timespec:
        int64_t tv_sec
        long tv_nsec
    int clock_gettime(int clock, timespec *time)
    int CLOCK_REALTIME

cdef enum Variable:
    CONSTANT
    TS_MS
    TS_US
    TS_NS
    SERVER_ID
    GTID_TEXT
    FILE_TEXT
    POSITION
    THREAD
    PROCESSED_MS
    PROCESSED_US
    PROCESSED_NS

_VARIABLES = {
    "ts_ms": TS_MS,
    "ts_us": TS_US,
    "ts_ns": TS_NS,
    "server_id": SERVER_ID,
    "gtid": GTID_TEXT,
    "file": FILE_TEXT,
    "pos": POSITION,
    "thread": THREAD,
    "processed_ms": PROCESSED_MS,
    "processed_us": PROCESSED_US,
    "processed_ns": PROCESSED_NS,
}

cdef enum:
    OPS = 3
    FLUSH_BYTES = 262144  # of keys and values
    KEPT_BYTES = 4194304

cdef int64_t MAX_TS_US = 9223372036854775  # in nanoseconds it has 64 bits


cdef struct Piece:
    Variable variable
    Text text  # the constant, or what precedes the value
    Text absent  # replaces the value and what precedes it


cdef struct EventValues:
    int64_t ts_us
    int64_t server_id
    int64_t pos
    int64_t thread  # -1: none
    int64_t now_us
    Text gtid  # empty: none
    Text file


cdef inline object field(object event, Py_ssize_t at):
    """Return a field of a named tuple."""
    return <object> PyTuple_GET_ITEM(event, at)


cdef inline int64_t number_of(const Piece *piece, const EventValues *values) noexcept:
    if piece.variable == TS_MS:
        return values.ts_us // 1000
    if piece.variable == TS_US:
        return values.ts_us
    if piece.variable == TS_NS:
        return values.ts_us * 1000
    if piece.variable == SERVER_ID:
        return values.server_id
    if piece.variable == POSITION:
        return values.pos
    if piece.variable == THREAD:
        return values.thread
    if piece.variable == PROCESSED_MS:
        return values.now_us // 1000
    if piece.variable == PROCESSED_US:
        return values.now_us
    return values.now_us * 1000


cdef class Template:
    """What surrounds the row number, of all records of an operation of one table version."""

    cdef Piece *pieces
    cdef int count
    cdef bint avro
    cdef object _kept

    def __cinit__(self, pieces, *, avro):
        cdef int i
        self.avro, self._kept = avro, list(pieces)
        self.count = len(self._kept)
        self.pieces = <Piece *> PyMem_Calloc(self.count + 1, sizeof(Piece))
        if self.pieces == NULL:
            raise MemoryError()
        for i in range(self.count):
            name, text, absent = self._kept[i]
            self.pieces[i].variable = _VARIABLES[name] if name else CONSTANT
            self.pieces[i].text, self.pieces[i].absent = text_of(<bytes?> text), text_of(<bytes?> absent)

    def __dealloc__(self):
        PyMem_Free(self.pieces)

    cdef int write(self, Output *out, const EventValues *values) except -1:
        cdef const Piece *piece
        cdef const Text *text
        cdef int i
        out.size = 0
        for i in range(self.count):
            piece = &self.pieces[i]
            if piece.variable == CONSTANT:
                reserve(out, piece.text.size)
                put(out, piece.text.data, piece.text.size)
                continue
            if (piece.variable == GTID_TEXT and not values.gtid.size) or (
                piece.variable == THREAD and values.thread < 0
            ):
                reserve(out, piece.absent.size)
                put(out, piece.absent.data, piece.absent.size)
                continue
            text = &values.gtid if piece.variable == GTID_TEXT else &values.file
            reserve(out, piece.text.size + text.size + 24)
            put(out, piece.text.data, piece.text.size)
            if piece.variable == GTID_TEXT or piece.variable == FILE_TEXT:
                if self.avro:
                    put_varint(out, text.size)
                else:
                    put_byte(out, 34)
                put(out, text.data, text.size)
                if not self.avro:
                    put_byte(out, 34)
            elif self.avro:
                put_varint(out, number_of(piece, values))
            else:
                put_signed(out, number_of(piece, values))
        return 0

    def render(self, *, int64_t ts_us, int64_t server_id, bytes gtid, bytes file, int64_t pos, thread, int64_t now_us):
        """Return the bytes of one event."""
        cdef EventValues values
        cdef Output out
        values.ts_us, values.server_id, values.pos, values.now_us = ts_us, server_id, pos, now_us
        values.thread = -1 if thread is None else thread
        values.gtid, values.file = text_of(gtid), text_of(file)
        out.data, out.size, out.room = NULL, 0, 0
        try:
            self.write(&out, &values)
            return taken(&out)
        finally:
            free(out.data)


@cython.final
cdef class TableEmitter:
    """What the events of one table version need; ``prepare`` is called at the first event of each operation."""

    cdef object owner  # the version, while it is emitted; it refers to this object
    cdef object prepare
    cdef bytes topic
    cdef list headers
    cdef str event_name
    cdef bytes epoch
    cdef Vu *arguments
    cdef size_t used
    cdef bint looked[OPS]
    cdef list encoders
    cdef list before
    cdef list after
    cdef int64_t events[OPS]
    cdef int64_t records[OPS]
    cdef int64_t empty[OPS]
    cdef int64_t rows  # of the transaction ``serial``
    cdef int64_t serial
    cdef bint touched

    def __cinit__(self, str topic not None, list headers not None, str event_header not None, epoch, prepare):
        if len(headers) >= MAX_HEADERS:
            raise ValueError("too many headers")
        self.prepare = prepare
        self.encoders, self.before, self.after = [None] * OPS, [None] * OPS, [None] * OPS
        self.topic, self.headers = topic.encode(), list(headers)
        self.event_name, self.epoch = event_header, b"%d." % epoch
        self.used = BEFORE_HEADERS + 1 + len(headers)
        self.arguments = <Vu *> PyMem_Calloc(self.used, sizeof(Vu))
        if self.arguments == NULL:
            raise MemoryError()
        self.arguments[0].kind, self.arguments[1].kind = VTYPE_RKT, VTYPE_MSGFLAGS
        self.arguments[2].kind, self.arguments[3].kind = VTYPE_KEY, VTYPE_VALUE
        self.arguments[BEFORE_HEADERS].kind = VTYPE_HEADER
        self.arguments[BEFORE_HEADERS].value.header.name = PyUnicode_AsUTF8(self.event_name)
        put_headers(self.arguments + BEFORE_HEADERS + 1, self.headers)

    def __dealloc__(self):
        PyMem_Free(self.arguments)

    cdef bint knows(self, int op) except -1:
        """Return whether events of an operation can be encoded here."""
        if not self.looked[op]:
            self.looked[op] = True
            found = self.prepare(op)
            if found is not None:
                encoder, before, after = found
                self.encoders[op], self.before[op], self.after[op] = <ImageEncoder?> encoder, before, after
        return self.encoders[op] is not None


cdef struct Group:  # the records of one event
    Vu *arguments
    size_t used
    const char *topic
    Py_ssize_t end  # index after the last of its records
    Py_ssize_t event
    PyObject *table  # its TableEmitter, which is kept by ``touched``
    int op
    Py_ssize_t records
    Py_ssize_t header  # where its event header begins
    Py_ssize_t header_end


@cython.final
cdef class ChangeEmitter:
    """Emits the changes of usual transactions, those of tables under snapshot as their covers decide."""

    cdef type begin_event
    cdef type rows_event
    cdef type commit_event
    cdef tuple ops
    cdef Sender sender
    cdef object output
    cdef object cover_of
    cdef bint include_query
    cdef Records records
    cdef Output head
    cdef Output tail
    cdef Output texts
    cdef Group *groups
    cdef Py_ssize_t group_count
    cdef Py_ssize_t group_room
    cdef Py_ssize_t group_at  # the first whose records are not all handed over
    cdef list touched
    cdef int64_t serial
    cdef bint busy
    cdef readonly object begin
    cdef readonly bint entered
    cdef readonly list ended
    cdef readonly object last_begin
    cdef readonly int64_t number
    cdef readonly int64_t pos
    cdef readonly Py_ssize_t failed_at

    def __cinit__(
        self, type begin, type rows, type commit, *, tuple ops not None, output, cover_of, include_query
    ):
        if len(ops) != OPS:
            raise ValueError("other operations")
        self.begin_event = event_type(begin, BEGIN_FIELDS)
        self.rows_event = event_type(rows, ROWS_FIELDS)
        self.commit_event = event_type(commit, COMMIT_FIELDS)
        self.ops, self.output, self.cover_of, self.include_query = ops, output, cover_of, include_query
        self.records = Records.__new__(Records)
        self.touched, self.ended = [], []
        self.failed_at = -1

    def __dealloc__(self):
        free(self.head.data)
        free(self.tail.data)
        free(self.texts.data)
        PyMem_Free(self.groups)

    def emit(
        self,
        Sender sender not None,
        list events not None,
        Py_ssize_t at,
        Py_ssize_t end,
        dict versions not None,
        begin,
        Py_ssize_t room,
        streaming,
    ):
        if self.busy:
            raise RuntimeError("the emitter is in use")
        if at < 0 or end > len(events):
            raise IndexError("beyond the events")
        self.busy, self.sender = True, sender
        self._forget()
        self.ended = []
        self.begin, self.entered, self.last_begin = begin, False, None
        self.serial += 1
        self.failed_at = self.number = -1
        try:
            at = self._emit(events, at, end, versions, room, streaming)
            self._flush()
            return at
        except BaseException:
            self._uncount()
            raise
        finally:
            self.busy, self.sender = False, None  # the client ends with its last reference
            self._clear()

    def take_counts(self):
        """Return (owner, operation, events, records, events without records) since the last call."""
        cdef TableEmitter table
        cdef int op
        found = []
        for table in self.touched:
            for op in range(OPS):
                if table.events[op]:
                    found.append((table.owner, self.ops[op], table.events[op], table.records[op], table.empty[op]))
                    table.events[op] = table.records[op] = table.empty[op] = 0
        return found

    cdef _forget(self):
        cdef TableEmitter table
        for table in self.touched:
            table.touched, table.owner = False, None
        self.touched = []

    cdef _uncount(self):
        """Take back the counts of the events whose records were not all handed over."""
        cdef Group *group
        cdef TableEmitter table
        cdef Py_ssize_t i
        for i in range(self.group_at, self.group_count):
            group = &self.groups[i]
            table = <TableEmitter> group.table
            table.events[group.op] -= 1
            table.records[group.op] -= group.records

    def take_rows(self):
        """Return (owner, rows) of the open transaction, of the last call; ends what ``emit`` returned."""
        cdef TableEmitter table
        found = []
        for table in self.touched:
            if table.serial == self.serial and table.rows and self.begin is not None:
                found.append((table.owner, table.rows))
        self._forget()
        return found

    cdef _clear(self):
        cdef Records records = self.records
        if records.held or records.data.room > KEPT_BYTES:  # in flight, or after a large event
            records.release()
        records.count = records.data.size = 0
        self.group_count = self.group_at = self.texts.size = 0

    cdef int _add_event(self, TableEmitter table, version, int op, int64_t rows, Py_ssize_t records) except -1:
        """Count an event of the open transaction."""
        if not table.touched:
            table.touched, table.owner = True, version
            self.touched.append(table)
        if table.serial != self.serial:
            table.serial, table.rows = self.serial, 0
        table.rows += rows
        table.events[op] += 1
        table.records[op] += records
        table.empty[op] += not records
        return 0

    cdef int _add_group(
        self, TableEmitter table, int op, Py_ssize_t records, Py_ssize_t event, object number
    ) except -1:
        cdef Group *group
        cdef Py_ssize_t room
        if self.group_count == self.group_room:
            room = self.group_room * 2 if self.group_room else 64
            group = <Group *> PyMem_Realloc(self.groups, room * sizeof(Group))
            if group == NULL:
                raise MemoryError()
            self.groups, self.group_room = group, room
        group = &self.groups[self.group_count]
        group.arguments, group.used = table.arguments, table.used
        group.topic = PyBytes_AS_STRING(table.topic)
        group.table, group.op, group.records = <PyObject *> table, op, records
        group.end, group.event, group.header = self.records.count, event, self.texts.size
        reserve(&self.texts, PyBytes_GET_SIZE(table.epoch) + 24)
        put_object(&self.texts, table.epoch)
        put_signed(&self.texts, number)
        group.header_end = self.texts.size
        self.group_count += 1
        return 0

    cdef Py_ssize_t _emit(
        self, list events, Py_ssize_t at, Py_ssize_t end, dict versions, Py_ssize_t room, streaming
    ) except -1:
        cdef Py_ssize_t records, size, added = 0
        cdef EventValues values
        cdef timespec now
        cdef TableEmitter table = None
        cdef KeyCover cover = None
        cdef ImageEncoder encoder
        cdef PyObject *found
        cdef Text head, tail
        cdef int op, decision
        cdef int64_t rows
        cdef int64_t commit_ts_us = 0
        definition = None
        begin = self.begin
        if begin is not None:
            self._enter(begin, &values, &commit_ts_us)
        while at < end:
            kind = type(events[at])
            if kind is self.rows_event:
                event = events[at]
                if begin is None or (self.include_query and field(event, 10) is not None):
                    break
                if field(event, 1) is not definition:
                    definition = field(event, 1)
                    found = PyDict_GetItemWithError(versions, field(definition, 3))
                    table = cover = None
                    if found != NULL:
                        version = <object> found
                        tracked = version.tracked
                        if tracked.mode is not streaming:
                            cover = self.cover_of(tracked)
                        if tracked.mode is streaming or cover is not None:
                            table = version.emitter
                if table is None:
                    break
                op = 0
                while op < OPS and self.ops[op] != field(event, 0):
                    op += 1
                if op == OPS or not table.knows(op):
                    break
                encoder = <ImageEncoder?> table.encoders[op]
                if cover is not None:
                    decision = encoder.decide(field(event, 2), field(event, 3), field(event, 4), cover, begin, &rows)
                    if decision == UNDECIDED:
                        break
                    if decision == SKIPPED:
                        self._add_event(table, version, op, rows, 0)
                        self.number, self.pos = field(event, 11), field(event, 6)
                        at += 1
                        continue
                clock_gettime(CLOCK_REALTIME, &now)
                values.now_us = <int64_t> now.tv_sec * 1000000 + now.tv_nsec // 1000
                values.ts_us = commit_ts_us if commit_ts_us else <int64_t> field(event, 8) * 1000000
                if values.ts_us > MAX_TS_US:
                    break
                values.server_id, values.pos = field(event, 9), field(event, 6)
                values.file.data = <const unsigned char *> PyUnicode_AsUTF8AndSize(field(event, 5), &values.file.size)
                (<Template?> table.before[op]).write(&self.head, &values)
                (<Template?> table.after[op]).write(&self.tail, &values)
                head.data, head.size = self.head.data, self.head.size
                tail.data, tail.size = self.tail.data, self.tail.size
                records, size = self.records.count, self.records.data.size
                rows = encoder.append(
                    field(event, 2), field(event, 3), field(event, 4), &head, &tail, 0, None, None, self.records
                )
                if rows < 0:
                    self.records.count, self.records.data.size = records, size
                    break
                records = self.records.count - records
                self._add_event(table, version, op, rows, records)
                if records:
                    self._add_group(table, op, records, at, field(event, 11))
                self.number, self.pos = field(event, 11), values.pos
                added += records
                at += 1
                if added >= room:
                    break
                if self.records.data.size >= FLUSH_BYTES:
                    self._flush()
            elif kind is self.begin_event:
                self.begin = begin = events[at]
                self.entered = True
                self.number = self.pos = 0
                self.serial += 1
                self._enter(begin, &values, &commit_ts_us)
                at += 1
            elif kind is self.commit_event:
                if begin is None:
                    break
                self.ended.append(events[at])
                self.last_begin, self.begin, begin = begin, None, None
                at += 1
            else:
                break
        return at

    cdef int _enter(self, begin, EventValues *values, int64_t *commit_ts_us) except -1:
        """Take what the events of a transaction have in common; the transaction keeps the text of its GTID."""
        values.gtid.data = <const unsigned char *> PyUnicode_AsUTF8AndSize(field(begin, 0), &values.gtid.size)
        if values.gtid.size > 5 and not memcmp(values.gtid.data, b"file=", 5):
            values.gtid.size = 0  # a name, no GTID
        values.thread = -1 if field(begin, 6) is None else field(begin, 6)
        commit_ts_us[0] = field(begin, 5)
        return 0

    cdef int _flush(self) except -1:
        """Hand over all records; what is not accepted is sent by the binding, which waits or raises the error."""
        cdef Py_ssize_t at = 0, sent = 0, count = self.records.count
        cdef int64_t held
        cdef Client *client = self.sender.client
        cdef Group *group
        if not count:
            return 0
        self.output.open()
        while True:
            held = start_reading(client, self.records, count - at)
            with nogil:
                at = self._produce(at, &self.group_at, held != 0)
                if held:
                    end_reading(client, held)
            self.output.sent(at - sent)
            if at == count:
                break
            key, value = self.records.item(at)
            group = &self.groups[self.group_at]
            headers = self._headers_of(group)
            self.failed_at = group.event
            self.output.send(group.topic.decode(), key, value, headers)
            self.failed_at = -1
            at += 1
            sent = at
        self._clear()
        if held:
            make_room(&self.records.data, FLUSH_BYTES + FLUSH_BYTES // 8)  # as much follows
        return 0

    cdef list _headers_of(self, Group *group):
        cdef TableEmitter table
        for table in self.touched:
            if table.arguments == group.arguments:
                text = PyBytes_FromStringAndSize(
                    <const char *> self.texts.data + group.header, group.header_end - group.header
                )
                return [(table.event_name, text), *table.headers]
        raise AssertionError("an event of a table that is not known")

    cdef Py_ssize_t _produce(self, Py_ssize_t at, Py_ssize_t *number, bint held) noexcept nogil:
        """Hand over records from ``at`` on; return the index of the first that is not accepted, in group ``number``."""
        cdef void *client = self.sender.client.handle
        cdef void *topic = NULL
        cdef void *error
        cdef const char *name = NULL
        cdef Group *group
        cdef Vu *arguments
        cdef Place *place
        cdef unsigned char *data = self.records.data.data
        cdef Py_ssize_t count = self.records.count
        while at < count:
            group = &self.groups[number[0]]
            if at == group.end:
                number[0] += 1
                continue
            arguments = group.arguments
            if group.topic != name:
                if topic != NULL:
                    _library.topic_destroy(topic)
                name = group.topic
                topic = _library.topic_new(client, name, NULL)
                if topic == NULL:
                    return at
            arguments[0].value.pointer = topic
            arguments[BEFORE_HEADERS].value.header.value = self.texts.data + group.header
            arguments[BEFORE_HEADERS].value.header.size = group.header_end - group.header
            while at < group.end:
                place = &self.records.places[at]
                arguments[2].value.memory.data = data + place.key
                arguments[2].value.memory.size = place.value - place.key
                put_value(arguments, data, place, held)
                error = _library.produceva(client, arguments, group.used)
                if error != NULL:
                    _library.error_destroy(error)
                    _library.topic_destroy(topic)
                    return at
                at += 1
        if topic != NULL:
            _library.topic_destroy(topic)
        return at
