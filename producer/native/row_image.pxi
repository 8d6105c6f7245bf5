# Values as row images have them.

cdef inline uint64_t big_endian(const unsigned char *data, Py_ssize_t size) noexcept:
    cdef uint64_t value = 0
    cdef Py_ssize_t at
    for at in range(size):
        value = value << 8 | data[at]
    return value


cdef inline uint64_t integer_bits(const Column *column, const unsigned char *data) noexcept:
    """Return an integer of a column; a negative one as the bits of its 64-bit form."""
    cdef uint64_t value = 0
    cdef int i
    for i in range(column.width):
        value |= <uint64_t> data[i] << 8 * i
    if column.signed and column.width < 8 and data[column.width - 1] & 128:
        value |= ~<uint64_t> 0 << 8 * column.width
    return value


cdef inline int64_t fraction_unit(int scale) noexcept:
    """Return the microseconds of one unit of a stored fraction."""
    return 10000 if scale == 1 or scale == 2 else 100 if scale == 3 or scale == 4 else 1


cdef int put_integer(Output *out, const Column *column, const unsigned char *data) noexcept:
    return put_int(out, column, <int64_t> integer_bits(column, data))


cdef inline int packed_size(int digits) noexcept:
    """Return the bytes of the digits on one side of a decimal's point."""
    cdef int rest = digits % 9
    return digits // 9 * 4 + (4 if rest > 6 else (rest + 1) // 2)


cdef bint has_its_width(const Column *column) noexcept:
    """Return whether a value of a row image has as many bytes as are read."""
    cdef Kind kind = column.kind
    cdef int width = column.width, fraction = (column.scale + 1) // 2
    if kind == DECIMAL or kind == DECIMAL_TEXT:
        if column.scale < 0 or column.whole_digits < 0 or not 1 <= column.scale + column.whole_digits <= 18:
            return False
        return width == packed_size(column.whole_digits) + packed_size(column.scale)
    if kind == DATETIME or kind == TIMESTAMP or kind == TIME:
        if not 0 <= column.scale <= 6:
            return False
        return width == fraction + (5 if kind == DATETIME else 4 if kind == TIMESTAMP else 3)
    if kind == INTEGER:
        return 1 <= width <= 8
    if kind == LABEL:
        return 1 <= width <= 2
    if kind == DOUBLE:
        return width == 8
    if kind == DATE:
        return width == 3
    if kind == YEAR:
        return width == 1
    return 0 <= width and 0 <= column.prefix <= 4


cdef int unpacked(const unsigned char *data, int whole, int scale, int64_t *unscaled) noexcept:
    """Read up to 18 digits: groups of nine in four bytes, all bits inverted below zero, the first one always."""
    cdef int64_t total = 0, group, power
    cdef int side, digits, left, width, i
    cdef unsigned char flip = 0 if data[0] & 128 else 255, first = 128
    cdef Py_ssize_t at = 0
    for side in range(2):
        left = scale if side else whole
        while left > 0:
            # The groups begin at the point: before it the first one is short, after it the last one.
            digits = (left % 9 or 9) if side == 0 else (9 if left > 9 else left)
            width = packed_size(digits)
            group = 0
            power = 1
            for i in range(width):
                group = group << 8 | (data[at] ^ flip ^ first)
                first = 0
                at += 1
            for i in range(digits):
                power *= 10
            if group >= power:
                return DECLINED
            total = total * power + group
            left -= digits
    unscaled[0] = -total if flip else total
    return DONE


cdef int packed_decimal(Output *out, const Column *column, const unsigned char *data) noexcept:
    cdef int64_t unscaled = 0
    if unpacked(data, column.whole_digits, column.scale, &unscaled) != DONE:
        return DECLINED
    return put_decimal(out, column, unscaled)


cdef int datetime_of_image(Output *out, const Column *column, const unsigned char *data) noexcept:
    cdef Moment found
    cdef uint64_t whole = big_endian(data, 5), ymd
    if not whole >> 39:
        return DECLINED
    whole &= (<uint64_t> 1 << 39) - 1
    ymd = whole >> 17
    found.year, found.month, found.day = <int> ((ymd >> 5) // 13), <int> ((ymd >> 5) % 13), <int> (ymd & 31)
    found.seconds = <int64_t> ((whole >> 12 & 31) * 3600 + (whole >> 6 & 63) * 60 + (whole & 63))
    found.micros = <int64_t> big_endian(data + 5, column.width - 5) * fraction_unit(column.scale)
    return DECLINED if found.micros >= 1000000 else put_datetime(out, column, &found)


cdef int timestamp_of_image(Output *out, const Column *column, const unsigned char *data) noexcept:
    cdef unsigned char text_data[40]
    cdef Output text
    cdef Moment found
    cdef uint64_t seconds = big_endian(data, 4), fraction = big_endian(data + 4, column.width - 4), limit = 1
    cdef int64_t days = <int64_t> (seconds // 86400) + 719162
    cdef int year, before, i
    if not seconds and not fraction:
        return put_zero(out, column)
    if column.scale % 2:
        fraction //= 10
    for i in range(column.scale):
        limit *= 10
    if fraction >= limit:
        return DECLINED
    # Days since 0001-01-01; the year is at most a few too great.
    year = <int> (days // 365) + 1
    while True:
        before = year - 1
        if before * 365 + before // 4 - before // 100 + before // 400 <= days:
            break
        year -= 1
    days -= before * 365 + before // 4 - before // 100 + before // 400
    found.year, found.month = year, 12
    while True:
        i = _DAYS_BEFORE_MONTH[found.month] + (found.month > 2 and is_leap(year))
        if i <= days:
            break
        found.month -= 1
    found.day = <int> days - i + 1
    text.data, text.size, text.room = text_data, 0, 40
    put_day(&text, &found)
    put_byte(&text, 84)
    put_clock(&text, <int64_t> (seconds % 86400))
    if column.scale:
        put_byte(&text, 46)
        put_padded(&text, fraction, column.scale)
    put_byte(&text, 90)
    return put_plain(out, column, text_data, text.size)


cdef int time_of_image(Output *out, const Column *column, const unsigned char *data) noexcept:
    """Seen as one number with the fraction in its low bits, the value is sign and magnitude."""
    cdef int bits = 8 * (column.width - 3)
    cdef int64_t packed = <int64_t> big_endian(data, column.width) - (<int64_t> 1 << (23 + bits)), size, whole, micros
    size = -packed if packed < 0 else packed
    whole = size >> bits
    micros = ((whole >> 12) * 3600 + (whole >> 6 & 63) * 60 + (whole & 63)) * 1000000
    micros += (size & ((<int64_t> 1 << bits) - 1)) * fraction_unit(column.scale)
    return put_time(out, column, -micros if packed < 0 else micros)


cdef int put_label(Output *out, const Column *column, const unsigned char *data) except -1:
    """Append the piece of an enumeration's ordinal."""
    cdef tuple labels = <tuple> column.labels
    cdef Py_ssize_t ordinal = data[0] if column.width == 1 else data[0] | <Py_ssize_t> data[1] << 8
    cdef bytes piece
    if ordinal >= len(labels):
        return DECLINED
    piece = labels[ordinal]
    reserve(out, PyBytes_GET_SIZE(piece))
    put(out, <const unsigned char *> PyBytes_AS_STRING(piece), PyBytes_GET_SIZE(piece))
    return DONE


cdef int put_double(Output *out, const Column *column, const unsigned char *data) except -1:
    """Append a double that Java prints as Python does, or as Avro."""
    cdef double value, size
    cdef char *text
    memcpy(&value, data, 8)
    if column.avro:
        put(out, column.tag, column.tag_size)
        put(out, data, 8)
        return DONE
    size = -value if value < 0 else value
    if not 1e-3 <= size < 1e7:
        return DECLINED
    text = PyOS_double_to_string(value, b"r", 0, Py_DTSF_ADD_DOT_0, NULL)
    put(out, <const unsigned char *> text, strlen(text))
    PyMem_Free(text)
    return DONE


cdef int value_of_image(Output *out, const Column *column, const unsigned char *data, Py_ssize_t size) noexcept:
    """Append the piece of a value that is not NULL; there is room for it."""
    cdef Moment found
    cdef Py_ssize_t at
    cdef uint32_t packed
    cdef Kind kind = column.kind
    if kind == INTEGER:
        return put_integer(out, column, data)
    if kind == TEXT:
        return put_text(out, column, data, size)
    if kind == ASCII:
        for at in range(size):
            if data[at] > 127:
                return DECLINED
        return put_text(out, column, data, size)
    if kind == DECIMAL or kind == DECIMAL_TEXT:
        return packed_decimal(out, column, data)
    if kind == DATE:
        packed = data[0] | <uint32_t> data[1] << 8 | <uint32_t> data[2] << 16
        found.year, found.month, found.day = packed >> 9, packed >> 5 & 15, packed & 31
        return put_date(out, column, &found)
    if kind == DATETIME:
        return datetime_of_image(out, column, data)
    if kind == TIMESTAMP:
        return timestamp_of_image(out, column, data)
    if kind == TIME:
        return time_of_image(out, column, data)
    if kind == YEAR:
        return put_int(out, column, data[0] + 1900)
    if kind == BYTES or kind == HEX or kind == BASE64 or kind == BASE64_URL:
        if size < column.least:
            return DECLINED
        return put_bytes(out, column, data, size) if kind == BYTES else put_printed(out, column, data, size)
    if kind == BITS:
        return put_bits(out, column, data, size)
    if kind == BOOLEAN:
        return put_boolean(out, column, size == 1 and data[0] == 1)
    return DECLINED
