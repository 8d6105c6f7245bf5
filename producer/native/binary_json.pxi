# MySQL's binary JSON: documents of usual values. What is declined, and every fault, goes to types/json_binary.py.

cdef enum:
    DEEPEST = 100
    LONGEST_LENGTH = 5


cdef struct Document:
    const unsigned char *data
    Py_ssize_t size
    Py_ssize_t left  # bytes of values that may follow: as many as there are
    int depth
    bint bare  # a double without fraction has no point
    bint inside  # the text stands in a JSON string: its quotes and backslashes are escaped once more


cdef inline Py_ssize_t number_of_json(const Document *doc, Py_ssize_t at, int width) noexcept:
    """Read an unsigned number; -1 beyond the document."""
    cdef Py_ssize_t value = 0
    cdef int i
    if at + width > doc.size:
        return -1
    for i in range(width):
        value |= <Py_ssize_t> doc.data[at + i] << 8 * i
    return value


cdef inline Py_ssize_t length_of_json(const Document *doc, Py_ssize_t *at) noexcept:
    """Read a length in groups of seven bits and move behind it; -1 if there is none."""
    cdef Py_ssize_t length = 0
    cdef unsigned char byte
    cdef int group
    for group in range(LONGEST_LENGTH):
        if at[0] >= doc.size:
            return -1
        byte = doc.data[at[0]]
        at[0] += 1
        length |= <Py_ssize_t> (byte & 127) << 7 * group
        if byte < 128:
            return length
    return -1


cdef inline void put_quote(Output *out, const Document *doc) noexcept:
    if doc.inside:
        put_byte(out, 92)
    put_byte(out, 34)


cdef void put_json_escape(Output *out, const Document *doc, unsigned char byte) noexcept:
    """Append a character that a JSON string escapes; at most seven bytes."""
    cdef unsigned char data[8]
    cdef Output text
    text.data, text.size, text.room = data, 0, 8
    put_escaped(&text, &byte, 1)
    if doc.inside:
        put_byte(out, 92)
        if byte == 0x22 or byte == 0x5C:
            put_byte(out, 92)
            put_byte(out, 92)
            put_byte(out, byte)
            return
    put(out, data, text.size)


cdef int json_string(Output *out, Document *doc, Py_ssize_t start, Py_ssize_t length) except -1:
    cdef const unsigned char *data
    cdef Py_ssize_t at = 0
    cdef unsigned char kind
    doc.left -= length
    if doc.left < 0 or start + length > doc.size:
        return DECLINED
    data = doc.data + start
    reserve(out, 7 * length + 4)
    put_quote(out, doc)
    if not doc.inside:
        # Avro has UTF-8 only, which is not checked here.
        for at in range(length):
            if data[at] > 127:
                return DECLINED
        at = 0
    if is_plain(data, length):
        put(out, data, length)
        at = length
    while at < length:
        kind = _ESCAPED[data[at]]
        if kind == 1:
            put_json_escape(out, doc, data[at])
        elif kind == 2 and starts_four_bytes(data + at, length - at):
            if put_surrogates(out, data + at) != DONE:
                return DECLINED
            at += 3
        else:
            put_byte(out, data[at])
        at += 1
    put_quote(out, doc)
    return DONE


cdef int json_opaque(Output *out, Document *doc, Py_ssize_t at) except -1:
    """Append a value of another MySQL type: a number, a date or a time, or its bytes as base64."""
    cdef Py_ssize_t length
    cdef const unsigned char *body
    cdef int kind
    if at >= doc.size:
        return DECLINED
    kind = doc.data[at]
    at += 1
    length = length_of_json(doc, &at)
    doc.left -= length
    if length < 0 or doc.left < 0 or at + length > doc.size:
        return DECLINED
    body = doc.data + at
    reserve(out, 2 * length + 64)
    if kind == 246:
        return json_decimal(out, body, length)
    put_quote(out, doc)
    if kind == 7 or kind == 10 or kind == 11 or kind == 12:
        if length != 8 or json_moment(out, kind, body) != DONE:
            return DECLINED
    else:
        put(out, <const unsigned char *> b"base64:type", 11)
        put_digits(out, kind)
        put_byte(out, 58)
        put_base64(out, body, length, _BASE64)
    put_quote(out, doc)
    return DONE


cdef int json_decimal(Output *out, const unsigned char *body, Py_ssize_t length) noexcept:
    cdef int whole, scale
    cdef int64_t unscaled = 0
    if length < 3 or body[1] > body[0] or not 1 <= body[0] <= 18:
        return DECLINED
    whole, scale = body[0] - body[1], body[1]
    if length - 2 != packed_size(whole) + packed_size(scale) or unpacked(body + 2, whole, scale, &unscaled) != DONE:
        return DECLINED
    put_unscaled(out, scale, unscaled)
    return DONE


cdef int json_moment(Output *out, int kind, const unsigned char *body) noexcept:
    cdef uint64_t packed = 0, whole, micros, days, year
    cdef bint negative
    cdef int i
    for i in range(8):
        packed |= <uint64_t> body[i] << 8 * i
    negative = packed >> 63
    if negative:
        packed = <uint64_t> 0 - packed
    whole, micros = packed >> 24, packed & 0xFFFFFF
    if micros > 999999:
        return DECLINED
    if kind == 11:
        if negative:
            put_byte(out, 45)
        if whole >> 12 & 0x3FF > 99:
            put_digits(out, whole >> 12 & 0x3FF)
        else:
            put_padded(out, whole >> 12 & 0x3FF, 2)
    else:
        days = whole >> 17
        year = (days >> 5) // 13
        if negative or year > 9999:
            return DECLINED
        put_padded(out, year, 4)
        put_byte(out, 45)
        put_padded(out, (days >> 5) % 13, 2)
        put_byte(out, 45)
        put_padded(out, days & 31, 2)
        if kind == 10:
            return DONE
        put_byte(out, 32)
        put_padded(out, whole >> 12 & 31, 2)
    put_byte(out, 58)
    put_padded(out, whole >> 6 & 63, 2)
    put_byte(out, 58)
    put_padded(out, whole & 63, 2)
    put_byte(out, 46)
    put_padded(out, micros, 6)
    return DONE


cdef int json_double(Output *out, const unsigned char *data, bint bare) except -1:
    """Append a double that the server prints as Python does."""
    cdef double value, size
    cdef char *text
    memcpy(&value, data, 8)
    size = -value if value < 0 else value
    if size != 0 and not 1e-4 <= size < 1e15:
        return DECLINED
    text = PyOS_double_to_string(value, b"r", 0, 0 if bare else Py_DTSF_ADD_DOT_0, NULL)
    reserve(out, strlen(text))
    put(out, <const unsigned char *> text, strlen(text))
    PyMem_Free(text)
    return DONE


cdef int json_value(Output *out, Document *doc, int kind, Py_ssize_t at) except -1:
    cdef Py_ssize_t length
    cdef uint64_t bits = 0
    cdef int i, width, done
    if kind <= 3:
        doc.depth += 1
        if doc.depth > DEEPEST:
            return DECLINED
        done = json_container(out, doc, kind < 2, at, 4 if kind & 1 else 2)
        doc.depth -= 1
        return done
    if kind == 12:
        length = length_of_json(doc, &at)
        return DECLINED if length < 0 else json_string(out, doc, at, length)
    if kind == 15:
        return json_opaque(out, doc, at)
    if kind > 11:
        return DECLINED
    width = 1 if kind == 4 else 8 if kind == 11 else 2 << (kind - 5) // 2
    if at + width > doc.size:
        return DECLINED
    if kind == 11:
        return json_double(out, doc.data + at, doc.bare)
    reserve(out, 24)
    if kind == 4:
        if doc.data[at] == 0:
            put(out, <const unsigned char *> b"null", 4)
        elif doc.data[at] == 1:
            put(out, <const unsigned char *> b"true", 4)
        elif doc.data[at] == 2:
            put(out, <const unsigned char *> b"false", 5)
        else:
            return DECLINED
        return DONE
    for i in range(width):
        bits |= <uint64_t> doc.data[at + i] << 8 * i
    if kind & 1 and doc.data[at + width - 1] & 128:
        put_byte(out, 45)
        bits = (<uint64_t> 0 - bits) & (~<uint64_t> 0 >> 64 - 8 * width)
    put_digits(out, bits)
    return DONE


cdef int json_container(Output *out, Document *doc, bint is_object, Py_ssize_t at, int width) except -1:
    cdef Py_ssize_t count = number_of_json(doc, at, width), key = at + 2 * width, entry, offset, i
    cdef int kind, done
    if count < 0:
        return DECLINED
    entry = key + count * (width + 2) if is_object else key
    reserve(out, 1)
    put_byte(out, 123 if is_object else 91)
    for i in range(count):
        reserve(out, 2)
        if i:
            put_byte(out, 44)
        if is_object:
            if key + width + 2 > doc.size:
                return DECLINED
            offset = number_of_json(doc, key, width)
            if json_string(out, doc, at + offset, number_of_json(doc, key + width, 2)) != DONE:
                return DECLINED
            reserve(out, 1)
            put_byte(out, 58)
            key += width + 2
        doc.left -= 1
        if doc.left < 0 or entry + width + 1 > doc.size:
            return DECLINED
        kind = doc.data[entry]
        if 4 <= kind <= (8 if width == 4 else 6):
            done = json_value(out, doc, kind, entry + 1)
        else:
            done = json_value(out, doc, kind, at + number_of_json(doc, entry + 1, width))
        if done != DONE:
            return DECLINED
        entry += width + 1
    reserve(out, 1)
    put_byte(out, 125 if is_object else 93)
    return DONE


cdef int put_binary_json(
    Output *out, Output *text, const Column *column, const unsigned char *data, Py_ssize_t size
) except -1:
    """Append the piece of a document; ``text`` is a buffer for Avro, where its length precedes it."""
    cdef Document doc
    cdef Output *into = text if column.avro else out
    doc.data, doc.size, doc.left, doc.depth = data, size, size, 0
    doc.bare, doc.inside = column.exact, not column.avro
    if column.avro:
        text.size = 0
    else:
        put_byte(out, 34)
    if not size:
        reserve(into, 4)
        put(into, <const unsigned char *> b"null", 4)
    elif json_value(into, &doc, data[0], 1) != DONE:
        return DECLINED
    if column.avro:
        put(out, column.tag, column.tag_size)
        put_varint(out, text.size)
        reserve(out, text.size)
        put(out, text.data, text.size)
    else:
        reserve(out, 1)
        put_byte(out, 34)
    return DONE
