# The output buffer, and what is written into it: numbers, text, bytes, in JSON or Avro.

cdef struct Output:
    unsigned char *data
    Py_ssize_t size
    Py_ssize_t room


cdef unsigned char _ESCAPED[256]
"""1: the byte is escaped in a JSON string; 2: it may start a character of four bytes."""
cdef const char *_HEX_UPPER = b"0123456789ABCDEF"
cdef const char *_HEX_LOWER = b"0123456789abcdef"
cdef const char *_BASE64 = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
cdef const char *_BASE64_URL = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"


cdef void _fill_escaped() noexcept:
    cdef int i
    for i in range(256):
        _ESCAPED[i] = 1 if i < 0x20 or i == 0x22 or i == 0x5C else 2 if i >= 0xF0 else 0


_fill_escaped()


cdef int make_room(Output *out, Py_ssize_t room) except -1:
    """Change the size of the buffer. It is freed by ``free``: perhaps by a thread of Kafka's client."""
    cdef unsigned char *data = <unsigned char *> realloc(out.data, room)
    if data == NULL:
        raise MemoryError()
    out.data = data
    out.room = room
    return 0


cdef inline int reserve(Output *out, Py_ssize_t more) except -1:
    """Make room for so many bytes, and for as many again, up to 16 MiB: a limit of the address space may apply."""
    cdef Py_ssize_t room = out.size + more
    if room <= out.room:
        return 0
    room += min(room, <Py_ssize_t> 16 << 20)
    return make_room(out, room)


cdef inline void put(Output *out, const unsigned char *data, Py_ssize_t size) noexcept:
    """Append bytes; there must be room for them, as for all ``put`` functions."""
    memcpy(out.data + out.size, data, size)
    out.size += size


cdef inline void put_byte(Output *out, unsigned char byte) noexcept:
    out.data[out.size] = byte
    out.size += 1


cdef inline void put_digits(Output *out, uint64_t number) noexcept:
    """Append an unsigned number in decimal; at most 20 bytes."""
    cdef unsigned char digits[20]
    cdef int at = 20
    while number >= 10:
        at -= 1
        digits[at] = <unsigned char> (48 + number % 10)
        number //= 10
    at -= 1
    digits[at] = <unsigned char> (48 + number)
    put(out, digits + at, 20 - at)


cdef inline void put_padded(Output *out, uint64_t number, int width) noexcept:
    """Append exactly ``width`` digits."""
    cdef int i
    for i in range(width - 1, -1, -1):
        out.data[out.size + i] = <unsigned char> (48 + number % 10)
        number //= 10
    out.size += width


cdef inline void put_signed(Output *out, int64_t number) noexcept:
    """Append a signed number in decimal; at most 20 bytes."""
    if number < 0:
        put_byte(out, 45)
        put_digits(out, <uint64_t> 0 - <uint64_t> number)
    else:
        put_digits(out, <uint64_t> number)


cdef inline void put_varint(Output *out, int64_t number) noexcept:
    """Append an Avro int or long; at most 10 bytes."""
    cdef uint64_t z = (<uint64_t> number << 1) ^ (<uint64_t> 0 - (<uint64_t> number >> 63))
    while z > 127:
        put_byte(out, <unsigned char> (z & 127 | 128))
        z >>= 7
    put_byte(out, <unsigned char> z)


cdef inline bint is_plain(const unsigned char *data, Py_ssize_t size) noexcept:
    """Return whether no byte of a text must be looked at for an escape; False also if one perhaps must."""
    cdef uint64_t word, high = 0x8080808080808080ULL, ones = 0x0101010101010101ULL, quote, slash, found = 0
    cdef Py_ssize_t at = 0
    while size - at >= 8:
        memcpy(&word, data + at, 8)
        quote = word ^ (ones * 0x22)
        slash = word ^ (ones * 0x5C)
        found |= (word - ones * 0x20) & ~word
        found |= (quote - ones) & ~quote
        found |= (slash - ones) & ~slash
        found |= word & (word << 1) & (word << 2) & (word << 3)
        at += 8
    if found & high:
        return False
    while at < size:
        if _ESCAPED[data[at]]:
            return False
        at += 1
    return True


cdef inline int put_surrogates(Output *out, const unsigned char *text) noexcept:
    """Append the two escapes of a character of four bytes; DECLINED if it is none."""
    cdef uint32_t code = (text[0] & 7) << 18 | (text[1] & 63) << 12 | (text[2] & 63) << 6 | (text[3] & 63)
    cdef uint32_t unit
    cdef int i
    if code < 0x10000 or code > 0x10FFFF:
        return DECLINED
    code -= 0x10000
    for i in range(2):
        unit = 0xDC00 | (code & 0x3FF) if i else 0xD800 | code >> 10
        put_byte(out, 92)
        put_byte(out, 117)
        put_byte(out, _HEX_UPPER[unit >> 12])
        put_byte(out, _HEX_UPPER[unit >> 8 & 15])
        put_byte(out, _HEX_UPPER[unit >> 4 & 15])
        put_byte(out, _HEX_UPPER[unit & 15])
    return DONE


cdef inline bint starts_four_bytes(const unsigned char *data, Py_ssize_t left) noexcept:
    """Return whether a byte of 0xF0 or more starts four bytes that look like one character."""
    return (
        data[0] < 0xF8
        and left >= 4
        and data[1] & 0xC0 == 0x80
        and data[2] & 0xC0 == 0x80
        and data[3] & 0xC0 == 0x80
    )


cdef int put_escaped(Output *out, const unsigned char *data, Py_ssize_t size) noexcept:
    """Append the inside of a JSON string, at most six times the text."""
    cdef Py_ssize_t at = 0
    cdef unsigned char byte, kind
    while at < size:
        byte = data[at]
        kind = _ESCAPED[byte]
        if kind == 0:
            put_byte(out, byte)
        elif kind == 2:
            if starts_four_bytes(data + at, size - at):
                if put_surrogates(out, data + at) != DONE:
                    return DECLINED
                at += 3
            else:
                put_byte(out, byte)
        else:
            put_byte(out, 92)
            if byte == 0x22 or byte == 0x5C:
                put_byte(out, byte)
            elif byte == 8:
                put_byte(out, 98)
            elif byte == 9:
                put_byte(out, 116)
            elif byte == 10:
                put_byte(out, 110)
            elif byte == 12:
                put_byte(out, 102)
            elif byte == 13:
                put_byte(out, 114)
            else:
                put(out, b"u00", 3)
                put_byte(out, _HEX_UPPER[byte >> 4])
                put_byte(out, _HEX_UPPER[byte & 15])
        at += 1
    return DONE


cdef void put_base64(Output *out, const unsigned char *data, Py_ssize_t size, const char *letters) noexcept:
    cdef Py_ssize_t at = 0
    cdef uint32_t bits
    while size - at >= 3:
        bits = data[at] << 16 | data[at + 1] << 8 | data[at + 2]
        put_byte(out, letters[bits >> 18])
        put_byte(out, letters[bits >> 12 & 63])
        put_byte(out, letters[bits >> 6 & 63])
        put_byte(out, letters[bits & 63])
        at += 3
    if at == size:
        return
    bits = data[at] << 16 | (data[at + 1] << 8 if size - at == 2 else 0)
    put_byte(out, letters[bits >> 18])
    put_byte(out, letters[bits >> 12 & 63])
    put_byte(out, letters[bits >> 6 & 63] if size - at == 2 else 61)
    put_byte(out, 61)


cdef void put_hex(Output *out, const unsigned char *data, Py_ssize_t size) noexcept:
    cdef Py_ssize_t at
    for at in range(size):
        put_byte(out, _HEX_LOWER[data[at] >> 4])
        put_byte(out, _HEX_LOWER[data[at] & 15])
