# Hands records to librdkafka, whose functions are given by address: the module is built without it.
#
# The client's handle comes from librdkafka itself. It loads this module as a plugin, calls conf_init(), and passes the
# handle to on_new(): see plugin.library.paths and the interceptors in librdkafka's rdkafka.h. All of it is public API.

cdef struct Memory:
    void *data
    size_t size


cdef struct Header:
    const char *name
    const void *value
    Py_ssize_t size


cdef union Argument:
    void *pointer
    int number
    Memory memory
    Header header
    char room[64]


cdef struct Vu:  # rd_kafka_vu_t
    int kind
    Argument value


cdef struct Message:  # rd_kafka_message_t
    int error
    void *topic
    int partition
    void *value
    size_t value_size
    void *key
    size_t key_size
    int64_t offset  # negative: no broker has answered with one


cdef enum:
    VTYPE_RKT = 2
    VTYPE_VALUE = 4
    VTYPE_KEY = 5
    VTYPE_MSGFLAGS = 7
    VTYPE_HEADER = 9
    MSG_F_COPY = 2
    BEFORE_HEADERS = 4
    MAX_HEADERS = 28  # more are left to the binding
    OUT_OF_MEMORY = -1  # any error: the client does not start
    PURGED_IN_FLIGHT = -151
    PURGED_IN_QUEUE = -152
    TOPICS = 256
    PRODUCE = 0  # the protocol's number of the request

cdef int64_t LOOK_NS = 300_000  # between two looks at what is in flight: so long, or a part of the time that has passed
cdef int64_t MOST_LOOK_NS = 2_000_000
cdef int LOOK_PART = 8
cdef int64_t ANSWERED_NS = 1_000_000_000  # a request without an answer for so long is not waited for

ctypedef int (*OnNew)(void *client, const void *conf, void *opaque, char *text, size_t size) noexcept nogil
ctypedef int (*OnAcknowledgement)(void *client, Message *message, void *opaque) noexcept nogil
ctypedef int (*OnRequestSent)(
    void *client, int socket, const char *name, int broker, short key, short version, int correlation, size_t size,
    void *opaque,
) noexcept nogil
ctypedef int (*OnResponseReceived)(
    void *client, int socket, const char *name, int broker, short key, short version, int correlation, size_t size,
    int64_t round_trip, int error, void *opaque,
) noexcept nogil
ctypedef int (*OnConfDestroy)(void *opaque) noexcept nogil

cdef struct Library:
    int (*conf_interceptor_add_on_new)(void *conf, const char *name, OnNew call, void *opaque) noexcept nogil
    int (*conf_interceptor_add_on_conf_destroy)(
        void *conf, const char *name, OnConfDestroy call, void *opaque
    ) noexcept nogil
    int (*interceptor_add_on_send)(void *client, const char *name, OnAcknowledgement call, void *opaque) noexcept nogil
    int (*interceptor_add_on_acknowledgement)(
        void *client, const char *name, OnAcknowledgement call, void *opaque
    ) noexcept nogil
    int (*interceptor_add_on_request_sent)(
        void *client, const char *name, OnRequestSent call, void *opaque
    ) noexcept nogil
    int (*interceptor_add_on_response_received)(
        void *client, const char *name, OnResponseReceived call, void *opaque
    ) noexcept nogil
    void *(*topic_new)(void *client, const char *name, void *conf) noexcept nogil
    void (*topic_destroy)(void *topic) noexcept nogil
    const char *(*topic_name)(const void *topic) noexcept nogil
    void *(*produceva)(void *client, const Vu *arguments, size_t count) noexcept nogil
    void (*error_destroy)(void *error) noexcept nogil


cdef struct Client:
    void *handle
    PyThread_type_lock lock
    int failed  # the error of the first failed record
    char topic[256]
    unsigned char *key
    size_t key_size
    size_t size
    bint inferred  # a record was acknowledged without an answer of its own
    const unsigned char *read_from  # the buffer whose values the client reads in place: of the records being sent
    size_t read_size
    int64_t created  # messages whose values are in it
    int64_t in_flight  # requests to produce
    int64_t given[TOPICS]  # bytes of keys and values since the client was made, by topic; topics may share a place
    int64_t answered[TOPICS]  # of them, those that are acknowledged or have failed
    int64_t partitions[TOPICS]  # that were seen


cdef Library _library
cdef Client *_newest = NULL
cdef const char *_NAME = b"tailrace"

FUNCTIONS = (
    "conf_interceptor_add_on_new",
    "conf_interceptor_add_on_conf_destroy",
    "interceptor_add_on_send",
    "interceptor_add_on_acknowledgement",
    "interceptor_add_on_request_sent",
    "interceptor_add_on_response_received",
    "topic_new",
    "topic_destroy",
    "topic_name",
    "produceva",
    "error_destroy",
)


def use_library(addresses):
    """Take the addresses of librdkafka's functions, in the order of ``FUNCTIONS``."""
    cdef void **functions = <void **> &_library
    cdef int i
    if len(addresses) != len(FUNCTIONS) or len(FUNCTIONS) * sizeof(void *) != sizeof(Library):
        raise ValueError("not all functions of the library")
    for i in range(<int> len(addresses)):
        functions[i] = <void *> <size_t> addresses[i]


cdef inline size_t place_of(void *topic) noexcept nogil:
    """Return the place of a topic's numbers, by the address of its object."""
    return (<size_t> topic >> 4) * 0x9E3779B97F4A7C15ULL >> 56


cdef int _on_send(void *handle, Message *message, void *opaque) noexcept nogil:
    cdef Client *client = <Client *> opaque
    add_to(&client.given[place_of(message.topic)], <int64_t> (message.key_size + message.value_size))
    if <size_t> message.value - <size_t> client.read_from < client.read_size:
        client.created += 1
    return 0


cdef int _on_request_sent(
    void *handle, int socket, const char *name, int broker, short key, short version, int correlation, size_t size,
    void *opaque,
) noexcept nogil:
    if key == PRODUCE:
        add_to(&(<Client *> opaque).in_flight, 1)
    return 0


cdef int _on_response_received(
    void *handle, int socket, const char *name, int broker, short key, short version, int correlation, size_t size,
    int64_t round_trip, int error, void *opaque,
) noexcept nogil:
    """Called with an error as well, also for a request that was not sent: the number may become negative."""
    if key == PRODUCE:
        add_to(&(<Client *> opaque).in_flight, -1)
    return 0


cdef int _on_acknowledgement(void *handle, Message *message, void *opaque) noexcept nogil:
    """Keep the first failed record, or the largest one of those that fail with the same error. Any thread calls this."""
    cdef Client *client = <Client *> opaque
    cdef size_t size, at
    cdef unsigned char *key
    if message.value != NULL:
        answered(message.value, 1, <int64_t> message.value_size)
    at = place_of(message.topic)
    add_to(&client.answered[at], <int64_t> (message.key_size + message.value_size))
    if message.partition >= value_of(&client.partitions[at]):
        set_to(&client.partitions[at], message.partition + 1)
    if not message.error:
        if message.offset < 0:
            client.inferred = True
        return 0
    if message.error == PURGED_IN_FLIGHT or message.error == PURGED_IN_QUEUE:
        return 0
    size = message.key_size + message.value_size
    PyThread_acquire_lock(client.lock, 1)
    if not client.failed or (client.failed == message.error and client.size < size):
        key = <unsigned char *> malloc(message.key_size + 1)
        if key != NULL:
            memcpy(key, message.key, message.key_size)
            free(client.key)
            client.failed, client.key, client.key_size, client.size = message.error, key, message.key_size, size
            strncpy(client.topic, _library.topic_name(message.topic), sizeof(client.topic) - 1)
    PyThread_release_lock(client.lock)
    return 0


cdef int _on_new(void *handle, const void *conf, void *opaque, char *text, size_t size) noexcept nogil:
    global _newest
    cdef Client *client = <Client *> opaque
    cdef int error = _library.interceptor_add_on_acknowledgement(handle, _NAME, _on_acknowledgement, client)
    if not error:
        error = _library.interceptor_add_on_send(handle, _NAME, _on_send, client)
    if not error:
        error = _library.interceptor_add_on_request_sent(handle, _NAME, _on_request_sent, client)
    if not error:
        error = _library.interceptor_add_on_response_received(handle, _NAME, _on_response_received, client)
    if not error:
        client.handle = handle
        _newest = client
    return error


cdef int _on_conf_destroy(void *opaque) noexcept nogil:
    """The client's threads have ended, or it was never started."""
    global _newest
    cdef Client *client = <Client *> opaque
    if _newest == client:
        _newest = NULL
    end_client(client)
    if client.lock != NULL:
        PyThread_free_lock(client.lock)
    free(client.key)
    free(client)
    return 0


cdef public int conf_init(void *conf, void **opaque, char *text, size_t size) noexcept nogil:
    """Called by librdkafka, which loads this module as a plugin of a client."""
    cdef Client *client
    cdef int error
    if size:
        text[0] = 0  # librdkafka shows it after a failure, and does not initialize it
    if _library.produceva == NULL:
        return OUT_OF_MEMORY
    client = <Client *> calloc(1, sizeof(Client))
    if client == NULL:
        return OUT_OF_MEMORY
    client.lock = PyThread_allocate_lock()
    error = OUT_OF_MEMORY if client.lock == NULL else _library.conf_interceptor_add_on_new(conf, _NAME, _on_new, client)
    if not error:
        error = _library.conf_interceptor_add_on_conf_destroy(conf, _NAME, _on_conf_destroy, client)
    if error:
        _on_conf_destroy(client)
    return error


cdef int64_t unanswered(Client *client, int64_t batch_bytes, bint *full) noexcept nogil:
    """Return the bytes without an answer; ``full``: of a topic, they are more than parts of batches can be."""
    cdef int64_t all_topics = 0, of_topic
    cdef int i
    full[0] = False
    for i in range(TOPICS):
        of_topic = value_of(&client.given[i]) - value_of(&client.answered[i])
        all_topics += of_topic
        if of_topic >= batch_bytes * max(value_of(&client.partitions[i]), 1):
            full[0] = True
    return all_topics


cdef int64_t start_reading(Client *client, Records records, Py_ssize_t count) except -1:
    """Let a client read the values of so many records in place, and count their messages; return 0 if it must not."""
    cdef bint full
    if client.read_from != NULL or records.data.size < LEAST_BYTES:
        return 0  # most of the batches of a quiet table: what is not answered is not added up for them
    if not records.hold_for(client, count, unanswered(client, 0, &full)):
        return 0
    client.read_from, client.read_size, client.created = records.data.data, records.data.room, 0
    return count


cdef inline void end_reading(Client *client, int64_t held) noexcept nogil:
    """Those of the messages that the buffer is held for, but were not created, are never acknowledged."""
    if held > client.created:
        answered(client.read_from, held - client.created, 0)
    client.read_from = NULL  # the last: another thread may send now


cdef inline void put_value(Vu *arguments, unsigned char *data, const Place *place, bint held) noexcept nogil:
    """Write the arguments for flags and value of a record."""
    cdef Py_ssize_t size = place.end - place.value
    arguments[1].value.number = 0 if held and size <= LARGEST_VALUE else MSG_F_COPY
    if place.end < 0:
        arguments[3].value.memory.data, arguments[3].value.memory.size = NULL, 0
    else:
        arguments[3].value.memory.data = data + place.value
        arguments[3].value.memory.size = size


cdef int put_headers(Vu *arguments, list headers) except -1:
    """Write the arguments for (name, value) pairs, which keep their bytes; return their number."""
    cdef tuple pair
    cdef int count = 0
    if headers is None:
        return 0
    for pair in headers:
        value = pair[1]
        arguments[count].kind = VTYPE_HEADER
        arguments[count].value.header.name = PyUnicode_AsUTF8(pair[0])
        if value is None:
            arguments[count].value.header.value, arguments[count].value.header.size = NULL, 0
        elif isinstance(value, str):
            arguments[count].value.header.value = PyUnicode_AsUTF8AndSize(
                value, &arguments[count].value.header.size
            )
        else:
            arguments[count].value.header.value = PyBytes_AS_STRING(<bytes?> value)
            arguments[count].value.header.size = PyBytes_GET_SIZE(value)
        count += 1
    return count


@cython.final
cdef class Sender:
    """Hands records to the client that was made last by this thread, and keeps it alive."""

    cdef object owner
    cdef Client *client
    cdef int64_t left, in_flight, since  # of the last look of ``wait_for_batches``, and when they were new

    def __cinit__(self, owner):
        global _newest
        self.left = -1
        if _newest == NULL:
            raise ValueError("the client was not made with this module as its plugin")
        self.owner, self.client, _newest = owner, _newest, NULL

    @staticmethod
    def records(given):
        cdef Records records
        if isinstance(given, Records):
            return given
        records = Records.__new__(Records)
        records.extend(given)
        return records

    def send(self, str topic, Records records, Py_ssize_t start, list headers):
        """Hand over the records from ``start`` on; return the index of the first that was not accepted."""
        cdef void *client = self.client.handle
        cdef const char *name = PyUnicode_AsUTF8(topic)
        cdef void *place
        cdef void *error
        cdef unsigned char *data
        cdef Place *places = records.places
        cdef Py_ssize_t at = start, count = records.count
        cdef Vu arguments[BEFORE_HEADERS + MAX_HEADERS]
        cdef size_t used
        cdef int64_t held
        if at < 0:
            raise IndexError(at)
        if at >= count or (headers is not None and len(headers) > MAX_HEADERS):
            return at  # without a record the topic is not asked for
        used = BEFORE_HEADERS + put_headers(arguments + BEFORE_HEADERS, headers)
        held = start_reading(self.client, records, count - at)
        data = records.data.data  # it may have moved
        # The records and the headers are the caller's alone: they do not change meanwhile.
        with nogil:
            place = _library.topic_new(client, name, NULL)
            if place != NULL:
                arguments[0].kind, arguments[0].value.pointer = VTYPE_RKT, place
                arguments[1].kind = VTYPE_MSGFLAGS
                arguments[2].kind, arguments[3].kind = VTYPE_KEY, VTYPE_VALUE
                while at < count:
                    arguments[2].value.memory.data = data + places[at].key
                    arguments[2].value.memory.size = places[at].value - places[at].key
                    put_value(arguments, data, &places[at], held != 0)
                    error = _library.produceva(client, arguments, used)
                    if error != NULL:
                        _library.error_destroy(error)
                        break
                    at += 1
                _library.topic_destroy(place)
            if held:
                end_reading(self.client, held)
        return at

    def failed(self):
        """Return error code, topic, key and size of the first failed record; None if none has failed."""
        cdef Client *client = self.client
        with nogil:
            PyThread_acquire_lock(client.lock, 1)
        try:
            if not client.failed:
                return None
            key = PyBytes_FromStringAndSize(<const char *> client.key, client.key_size)
            return client.failed, (<bytes> client.topic).decode(), key, client.size
        finally:
            PyThread_release_lock(client.lock)

    def wait_for_batches(self, int64_t batch_bytes, int64_t most_ns, int64_t idle_ns):
        cdef Client *client = self.client
        cdef int64_t begin, now, until, left, in_flight
        cdef bint full
        with nogil:
            begin = now = now_ns()
            until = now + most_ns
            while True:
                left = unanswered(client, batch_bytes, &full)
                in_flight = value_of(&client.in_flight)
                if left <= 0:
                    set_to(&client.in_flight, 0)
                    break
                if in_flight <= 0 and not full:
                    break
                if left != self.left or in_flight != self.in_flight:
                    self.left, self.in_flight, self.since = left, in_flight, now
                elif now - self.since >= (ANSWERED_NS if in_flight > 0 else idle_ns):
                    break
                if now >= until:
                    with gil:
                        return False  # the next call goes on with this wait
                sleep_ns(min(max(LOOK_NS, (now - begin) // LOOK_PART), MOST_LOOK_NS))
                now = now_ns()
            self.left = -1
        return True

    def inferred(self):
        """Return whether a record was acknowledged by the success of a later one alone."""
        return self.client.inferred
