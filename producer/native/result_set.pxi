# Values as the text protocol has them.

cdef inline int64_t two_digits(const unsigned char *data) noexcept:
    """Return a number of two digits; a negative one below -1000 if they are none."""
    cdef unsigned int high = data[0] - <unsigned int> 48, low = data[1] - <unsigned int> 48
    if high > 9 or low > 9:
        return -100000
    return high * 10 + low


cdef inline int digits_of(const unsigned char *data, Py_ssize_t size, uint64_t *number) noexcept:
    """Read one to twenty digits; DECLINED for anything else, and beyond 64 bits."""
    cdef uint64_t value = 0
    cdef unsigned int digit
    cdef Py_ssize_t at
    if size < 1 or size > 20:
        return DECLINED
    for at in range(size):
        digit = data[at] - <unsigned int> 48
        if digit > 9:
            return DECLINED
        if at == 19 and (value > 1844674407370955161ULL or (value == 1844674407370955161ULL and digit > 5)):
            return DECLINED
        value = value * 10 + digit
    number[0] = value
    return DONE


cdef int signed_of(const unsigned char *data, Py_ssize_t size, int64_t *number) noexcept:
    """Read a sign and up to 18 digits."""
    cdef uint64_t value = 0
    cdef bint negative = size > 0 and data[0] == 45
    if size - negative > 18 or digits_of(data + negative, size - negative, &value) != DONE:
        return DECLINED
    number[0] = -<int64_t> value if negative else <int64_t> value
    return DONE


cdef int unscaled_of(const unsigned char *data, Py_ssize_t size, int scale, int64_t *number) noexcept:
    """Read a decimal of up to 18 digits as an integer."""
    cdef int64_t value = 0
    cdef unsigned int digit
    cdef Py_ssize_t at = 0, digits = 0
    cdef bint negative = size > 0 and data[0] == 45, point = scale == 0
    if negative:
        at = 1
    while at < size:
        digit = data[at] - <unsigned int> 48
        if digit <= 9:
            digits += 1
            if digits > 18:
                return DECLINED
            value = value * 10 + digit
        elif data[at] == 46 and not point:
            point = True
        else:
            return DECLINED
        at += 1
    if not digits:
        return DECLINED
    number[0] = -value if negative else value
    return DONE


cdef inline int day_of(const unsigned char *data, Moment *found) noexcept:
    """Read ``YYYY-MM-DD``."""
    cdef int64_t century = two_digits(data), year = two_digits(data + 2)
    cdef int64_t month = two_digits(data + 5), day = two_digits(data + 8)
    if century < 0 or year < 0 or month < 0 or day < 0 or data[4] != 45 or data[7] != 45:
        return DECLINED
    found.year, found.month, found.day = <int> (century * 100 + year), <int> month, <int> day
    return DONE


cdef inline int clock_of(const unsigned char *data, int64_t *seconds) noexcept:
    """Read ``HH:MM:SS``."""
    cdef int64_t hours = two_digits(data), minutes = two_digits(data + 3), rest = two_digits(data + 6)
    if hours < 0 or minutes < 0 or rest < 0 or minutes > 59 or rest > 59 or data[2] != 58 or data[5] != 58:
        return DECLINED
    seconds[0] = hours * 3600 + minutes * 60 + rest
    return DONE


cdef inline int micros_of(const unsigned char *data, Py_ssize_t size, int scale, int64_t *micros) noexcept:
    """Read the point and ``scale`` digits that end a value; nothing if ``scale`` is 0."""
    cdef uint64_t value = 0
    cdef int i
    micros[0] = 0
    if not scale:
        return DONE if not size else DECLINED
    if size != scale + 1 or data[0] != 46 or digits_of(data + 1, scale, &value) != DONE:
        return DECLINED
    for i in range(6 - scale):
        value *= 10
    micros[0] = <int64_t> value
    return DONE


cdef int datetime_of(Output *out, const Column *column, const unsigned char *data, Py_ssize_t size) noexcept:
    cdef Moment found
    if size < 19 or data[10] != 32 or day_of(data, &found) != DONE or clock_of(data + 11, &found.seconds) != DONE:
        return DECLINED
    if micros_of(data + 19, size - 19, column.scale, &found.micros) != DONE:
        return DECLINED
    return put_datetime(out, column, &found)


cdef int timestamp_of(Output *out, const Column *column, const unsigned char *data, Py_ssize_t size) noexcept:
    """The text is kept: its day and its time are not read."""
    if size < 11:
        return DECLINED
    if data[0] == 48:
        return put_zero(out, column)
    if column.avro:
        if not is_plain(data, size):
            return DECLINED
        put(out, column.tag, column.tag_size)
        put_varint(out, size + 1)
    else:
        put_byte(out, 34)
    put(out, data, 10)
    put_byte(out, 84)
    put(out, data + 11, size - 11)
    put_byte(out, 90)
    if not column.avro:
        put_byte(out, 34)
    return DONE


cdef int time_of(Output *out, const Column *column, const unsigned char *data, Py_ssize_t size) noexcept:
    """Read ``[-][H]HH:MM:SS`` with a fraction."""
    cdef bint negative = size > 0 and data[0] == 45
    cdef int64_t seconds, micros
    cdef uint64_t hundreds = 0
    data += negative
    size -= negative
    if size >= 9 and data[2] != 58:
        if digits_of(data, 1, &hundreds) != DONE:
            return DECLINED
        data += 1
        size -= 1
    if size < 8 or clock_of(data, &seconds) != DONE or micros_of(data + 8, size - 8, column.scale, &micros) != DONE:
        return DECLINED
    micros += (seconds + <int64_t> hundreds * 360000) * 1000000
    return put_time(out, column, -micros if negative else micros)


cdef int json_of(Output *out, const Column *column, const unsigned char *data, Py_ssize_t size) noexcept:
    """Write a document without its spaces, as the inside of a string; escapes and exponents are declined."""
    cdef Py_ssize_t at = 0
    cdef unsigned char byte
    cdef bint inside = False
    if column.avro:
        return DECLINED
    put_byte(out, 34)
    while at < size:
        byte = data[at]
        if byte == 92:
            return DECLINED
        if byte == 34:
            inside = not inside
            put_byte(out, 92)
            put_byte(out, 34)
        elif inside and byte >= 0xF0 and starts_four_bytes(data + at, size - at):
            if put_surrogates(out, data + at) != DONE:
                return DECLINED
            at += 3
        elif inside:
            put_byte(out, byte)
        elif byte >= 128 or (byte == 101 and at and data[at - 1] < 58):
            return DECLINED
        elif byte != 32:
            put_byte(out, byte)
        at += 1
    put_byte(out, 34)
    return DONE


cdef int value_of_result_set(
    Output *out, const Column *column, const unsigned char *data, Py_ssize_t size
) noexcept:
    """Append the piece of a value that is not NULL; there is room for it."""
    cdef uint64_t number = 0
    cdef int64_t signed = 0
    cdef Moment found
    cdef Kind kind = column.kind
    if kind == TEXT:
        return put_text(out, column, data, size)
    if kind == DIGITS:
        if not column.avro:
            put(out, data, size)
            return DONE
        if signed_of(data, size, &signed) != DONE:
            return DECLINED
        return put_int(out, column, signed)
    if kind == UNSIGNED or kind == WRAPPED or kind == YEAR:
        if digits_of(data, size, &number) != DONE:
            return DECLINED
        if kind == YEAR and not number:
            number = 1900
        if kind != WRAPPED and number >> 63:
            return DECLINED
        return put_int(out, column, <int64_t> number)
    if kind == DECIMAL or kind == DECIMAL_TEXT:
        if unscaled_of(data, size, column.scale, &signed) != DONE:
            return DECLINED
        return put_decimal(out, column, signed)
    if kind == DATE:
        if size != 10 or day_of(data, &found) != DONE:
            return DECLINED
        return put_date(out, column, &found)
    if kind == DATETIME:
        return datetime_of(out, column, data, size)
    if kind == TIMESTAMP:
        return timestamp_of(out, column, data, size)
    if kind == TIME:
        return time_of(out, column, data, size)
    if kind == BYTES:
        return put_bytes(out, column, data, size)
    if kind == HEX or kind == BASE64 or kind == BASE64_URL:
        return put_printed(out, column, data, size)
    if kind == BITS:
        return put_bits(out, column, data, size)
    if kind == BOOLEAN:
        return put_boolean(out, column, size == 1 and data[0] == 1)
    if kind == JSON:
        return json_of(out, column, data, size)
    return DECLINED
