# Buffers of records in flight: librdkafka is given the address of a value, and copies it only into a request.
#
# A message that was created is acknowledged or fails once, and its value is not read after that. A client that ends
# destroys the others. A buffer is freed when its Records are dropped and no message of it is left: by any thread.
# One message keeps a whole buffer, so the buffers are bounded: records of further ones are copied, by librdkafka.

cdef struct Buffer:
    unsigned char *start
    size_t size
    const void *client  # the only one that has messages of it
    int64_t messages  # that are neither acknowledged nor failed
    int64_t answered  # bytes of the values of those that are
    bint owned  # by Records


cdef enum:
    MOST_BUFFERS = 512
    LEAST_BYTES = 32768  # of a buffer; less is copied: it would take the place of a large one
    LARGEST_VALUE = 65535  # message.copy.max.bytes: larger ones librdkafka usually does not copy into a request

cdef int64_t SPARE_BYTES = 2097152  # that buffers may have of answered messages, besides a part of the others

cdef Buffer _buffers[MOST_BUFFERS]  # in the order of their addresses
cdef int64_t _buffer_count = 0
cdef int64_t _answered_bytes = 0  # of all buffers
cdef PyThread_type_lock _buffers_lock = PyThread_allocate_lock()
if _buffers_lock == NULL:
    raise MemoryError()


cdef int first_after(const void *address) noexcept nogil:
    """Return the index of the first buffer that starts after an address. The lock is held, as for all below."""
    cdef int low = 0, high = <int> _buffer_count, middle
    while low < high:
        middle = (low + high) // 2
        if <const void *> _buffers[middle].start <= address:
            low = middle + 1
        else:
            high = middle
    return low


cdef int buffer_of(const void *address) noexcept nogil:
    """Return the index of the buffer that contains an address, -1 if none does."""
    cdef int at = first_after(address) - 1
    if at < 0 or <size_t> address - <size_t> _buffers[at].start >= _buffers[at].size:
        return -1
    return at


cdef void free_if_unused(int at) noexcept nogil:
    global _buffer_count, _answered_bytes
    cdef Buffer *buffer = &_buffers[at]
    if buffer.owned or buffer.messages > 0:
        return
    free(buffer.start)
    _answered_bytes -= buffer.answered
    memmove(buffer, buffer + 1, (_buffer_count - at - 1) * sizeof(Buffer))
    set_to(&_buffer_count, _buffer_count - 1)


cdef bint hold(
    unsigned char *start, size_t size, const void *client, int64_t messages, int64_t left
) noexcept nogil:
    """Keep a buffer for messages of a client; return False if they must be copied. Each message calls ``answered``.

    ``left``: the bytes of records of the client that are not answered yet.
    """
    global _buffer_count
    cdef bint held = False
    cdef int at
    PyThread_acquire_lock(_buffers_lock, 1)
    at = first_after(start)
    if at and _buffers[at - 1].start == start:
        held = _buffers[at - 1].client == client
        if held:
            _buffers[at - 1].messages += messages
    elif _buffer_count < MOST_BUFFERS and _answered_bytes <= left // 16 + SPARE_BYTES:
        memmove(&_buffers[at + 1], &_buffers[at], (_buffer_count - at) * sizeof(Buffer))
        _buffers[at].start, _buffers[at].size, _buffers[at].client = start, size, client
        _buffers[at].messages, _buffers[at].answered, _buffers[at].owned = messages, 0, True
        set_to(&_buffer_count, _buffer_count + 1)
        held = True
    PyThread_release_lock(_buffers_lock)
    return held


cdef void answered(const void *address, int64_t messages, int64_t size) noexcept nogil:
    """Count messages whose values are in the buffer that contains an address; those that were copied are in none."""
    global _answered_bytes
    cdef int at
    if not value_of(&_buffer_count):
        return
    PyThread_acquire_lock(_buffers_lock, 1)
    at = buffer_of(address)
    if at >= 0:
        _buffers[at].messages -= messages
        _buffers[at].answered += size
        _answered_bytes += size
        free_if_unused(at)
    PyThread_release_lock(_buffers_lock)


cdef void drop(const void *start) noexcept nogil:
    """The Records of a buffer do not need it any more."""
    cdef int at
    PyThread_acquire_lock(_buffers_lock, 1)
    at = buffer_of(start)
    if at >= 0:
        _buffers[at].owned = False
        free_if_unused(at)
    PyThread_release_lock(_buffers_lock)


cdef void end_client(const void *client) noexcept nogil:
    """The client has destroyed all its messages, also those that were not acknowledged."""
    cdef int at
    PyThread_acquire_lock(_buffers_lock, 1)
    for at in range(<int> _buffer_count - 1, -1, -1):
        if _buffers[at].client == client:
            _buffers[at].client, _buffers[at].messages = NULL, 0
            free_if_unused(at)
    PyThread_release_lock(_buffers_lock)


def buffers_in_flight():
    """Return the number of buffers, their bytes, and their messages."""
    cdef int64_t count, size = 0, messages = 0
    cdef int at
    PyThread_acquire_lock(_buffers_lock, 1)
    count = _buffer_count
    for at in range(<int> count):
        size += _buffers[at].size
        messages += _buffers[at].messages
    PyThread_release_lock(_buffers_lock)
    return count, size, messages
