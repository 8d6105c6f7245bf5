# One value from its bytes to its piece of a record: JSON with its quotes, or Avro with the branch of its union.

cdef enum:
    DONE = 0
    DECLINED = 1


cdef enum Kind:
    CALL
    DIGITS
    UNSIGNED
    WRAPPED
    YEAR
    TEXT
    BYTES
    HEX
    BASE64
    BASE64_URL
    BITS
    BOOLEAN
    DECIMAL
    DECIMAL_TEXT
    DATE
    DATETIME
    TIMESTAMP
    TIME
    JSON
    INTEGER
    ASCII
    LABEL
    DOUBLE
    SKIP


_KINDS = {
    "call": CALL,
    "digits": DIGITS,
    "unsigned": UNSIGNED,
    "wrapped": WRAPPED,
    "year": YEAR,
    "text": TEXT,
    "bytes": BYTES,
    "hex": HEX,
    "base64": BASE64,
    "base64-url-safe": BASE64_URL,
    "bits": BITS,
    "boolean": BOOLEAN,
    "decimal": DECIMAL,
    "decimal-text": DECIMAL_TEXT,
    "date": DATE,
    "datetime": DATETIME,
    "timestamp": TIMESTAMP,
    "time": TIME,
    "json": JSON,
    "integer": INTEGER,
    "ascii": ASCII,
    "label": LABEL,
    "double": DOUBLE,
    "skip": SKIP,
}


cdef struct Column:
    Kind kind
    bint nullable
    bint avro
    const unsigned char *head  # the name of the member; empty in Avro
    Py_ssize_t head_size
    const unsigned char *tag  # the branch of the union in Avro; empty in JSON
    Py_ssize_t tag_size
    const unsigned char *null
    Py_ssize_t null_size
    const unsigned char *zero  # replaces a zero date; NULL: such a value is declined
    Py_ssize_t zero_size
    int64_t unit  # nanoseconds of one unit; 0: ISO text
    int adjust  # of years below 100: 0 none, 1 they are adjusted, 2 they are declined
    bint exact  # a value that the unit cuts is declined; JSON: a double without fraction has no point
    int scale  # of a decimal, or fraction digits
    int width  # bytes of a value in a row image; 0: its length precedes it
    int prefix  # bytes of that length
    bint signed
    int whole_digits  # of a decimal, before the point
    Py_ssize_t least  # a shorter value is declined
    PyObject *labels  # a tuple: the pieces of an enumeration
    PyObject *call  # encodes what is declined, if not NULL


cdef inline int put_int(Output *out, const Column *column, int64_t number) noexcept:
    if column.avro:
        put(out, column.tag, column.tag_size)
        put_varint(out, number)
    else:
        put_signed(out, number)
    return DONE


cdef inline int put_plain(Output *out, const Column *column, const unsigned char *data, Py_ssize_t size) noexcept:
    """Append text without any escape."""
    if column.avro:
        put(out, column.tag, column.tag_size)
        put_varint(out, size)
        put(out, data, size)
    else:
        put_byte(out, 34)
        put(out, data, size)
        put_byte(out, 34)
    return DONE


cdef inline int put_text(Output *out, const Column *column, const unsigned char *data, Py_ssize_t size) noexcept:
    if column.avro or is_plain(data, size):
        return put_plain(out, column, data, size)
    put_byte(out, 34)
    if put_escaped(out, data, size) != DONE:
        return DECLINED
    put_byte(out, 34)
    return DONE


cdef inline int put_bytes(Output *out, const Column *column, const unsigned char *data, Py_ssize_t size) noexcept:
    if column.avro:
        return put_plain(out, column, data, size)
    put_byte(out, 34)
    put_base64(out, data, size, _BASE64)
    put_byte(out, 34)
    return DONE


cdef int put_printed(Output *out, const Column *column, const unsigned char *data, Py_ssize_t size) noexcept:
    """Append bytes as hexadecimal or base64 text."""
    if column.avro:
        put(out, column.tag, column.tag_size)
        put_varint(out, size * 2 if column.kind == HEX else (size + 2) // 3 * 4)
    else:
        put_byte(out, 34)
    if column.kind == HEX:
        put_hex(out, data, size)
    else:
        put_base64(out, data, size, _BASE64 if column.kind == BASE64 else _BASE64_URL)
    if not column.avro:
        put_byte(out, 34)
    return DONE


cdef int put_bits(Output *out, const Column *column, const unsigned char *data, Py_ssize_t size) noexcept:
    """Append the bytes of BIT(n) in reverse."""
    cdef unsigned char reverse[8]
    cdef Py_ssize_t i
    if size > 8:
        return DECLINED
    for i in range(size):
        reverse[size - 1 - i] = data[i]
    return put_bytes(out, column, reverse, size)


cdef int put_boolean(Output *out, const Column *column, bint is_true) noexcept:
    if column.avro:
        put(out, column.tag, column.tag_size)
        put_byte(out, is_true)
    elif is_true:
        put(out, b"true", 4)
    else:
        put(out, b"false", 5)
    return DONE


cdef void put_unscaled(Output *out, int scale, int64_t unscaled) noexcept:
    """Append a decimal of up to 18 digits after the point; at most 40 bytes."""
    cdef uint64_t number = <uint64_t> unscaled, power = 1
    cdef int i
    if unscaled < 0:
        put_byte(out, 45)
        number = <uint64_t> 0 - number
    if not scale:
        put_digits(out, number)
        return
    for i in range(scale):
        power *= 10
    put_digits(out, number // power)
    put_byte(out, 46)
    put_padded(out, number % power, scale)


cdef int put_decimal(Output *out, const Column *column, int64_t unscaled) noexcept:
    """Append an unscaled number: two's complement, big-endian, as short as it can be; or its digits with the point."""
    cdef unsigned char data[8]
    cdef Output text
    cdef uint64_t number = <uint64_t> unscaled
    cdef unsigned char digits[48]
    cdef int i, size
    if column.kind == DECIMAL:
        for i in range(8):
            data[7 - i] = <unsigned char> (number >> 8 * i)
        size = 8
        while size > 1 and (
            (data[8 - size] == 0 and data[9 - size] < 128) or (data[8 - size] == 255 and data[9 - size] >= 128)
        ):
            size -= 1
        return put_bytes(out, column, data + 8 - size, size)
    if column.scale > 18:
        return DECLINED
    text.data, text.size, text.room = digits, 0, 48
    put_unscaled(&text, column.scale, unscaled)
    return put_plain(out, column, digits, text.size)


# -- days and times ------------------------------------------------------------------------------------------------

cdef int _MONTH_DAYS[13]
cdef int _DAYS_BEFORE_MONTH[13]


cdef void _fill_months() noexcept:
    cdef int i, before = 0
    for i in range(1, 13):
        _MONTH_DAYS[i] = 28 if i == 2 else 30 if i in (4, 6, 9, 11) else 31
        _DAYS_BEFORE_MONTH[i] = before
        before += _MONTH_DAYS[i]


_fill_months()


cdef inline bint is_leap(int year) noexcept:
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)


cdef struct Moment:
    int year  # as it is written, so adjusted
    int month
    int day
    int64_t days  # since 1970-01-01
    int64_t seconds  # of the day
    int64_t micros


cdef enum:
    ZERO = 2  # a date with a part that is zero


cdef inline int check_day(const Column *column, Moment *found) noexcept:
    """Adjust the year and count the days: DONE, ZERO, or DECLINED if there is no such day."""
    cdef int year = found.year, before
    if year == 0 or found.month == 0 or found.day == 0:
        return ZERO
    if year < 100 and column.adjust:
        if column.adjust == 2:
            return DECLINED
        year += 2000 if year < 70 else 1900
        found.year = year
    if year > 9999 or found.month > 12:
        return DECLINED
    if found.day > _MONTH_DAYS[found.month] and not (found.month == 2 and found.day == 29 and is_leap(year)):
        return DECLINED
    before = year - 1
    found.days = (
        before * 365 + before // 4 - before // 100 + before // 400
        + _DAYS_BEFORE_MONTH[found.month] + (found.month > 2 and is_leap(year)) + found.day - 719163
    )
    return DONE


cdef inline int put_zero(Output *out, const Column *column) noexcept:
    if column.zero == NULL:
        return DECLINED
    put(out, column.zero, column.zero_size)
    return DONE


cdef inline void put_day(Output *out, const Moment *found) noexcept:
    put_padded(out, found.year, 4)
    put_byte(out, 45)
    put_padded(out, found.month, 2)
    put_byte(out, 45)
    put_padded(out, found.day, 2)


cdef inline void put_clock(Output *out, int64_t seconds) noexcept:
    put_padded(out, seconds // 3600, 2)
    put_byte(out, 58)
    put_padded(out, seconds // 60 % 60, 2)
    put_byte(out, 58)
    put_padded(out, seconds % 60, 2)


cdef inline void put_iso_fraction(Output *out, int64_t micros) noexcept:
    """Append the point and the digits of a fraction without zeros at its end."""
    cdef int width = 6
    if not micros:
        return
    while micros % 10 == 0:
        micros //= 10
        width -= 1
    put_byte(out, 46)
    put_padded(out, micros, width)


cdef int put_date(Output *out, const Column *column, Moment *found) noexcept:
    cdef unsigned char digits[16]
    cdef Output text
    cdef int checked = check_day(column, found)
    if checked != DONE:
        return put_zero(out, column) if checked == ZERO else DECLINED
    if column.unit:
        return put_int(out, column, found.days)
    text.data, text.size, text.room = digits, 0, 16
    put_day(&text, found)
    put_byte(&text, 90)
    return put_plain(out, column, digits, text.size)


cdef int put_datetime(Output *out, const Column *column, Moment *found) noexcept:
    cdef unsigned char digits[40]
    cdef Output text
    cdef int64_t seconds
    cdef int checked = check_day(column, found)
    if checked != DONE:
        return put_zero(out, column) if checked == ZERO else DECLINED
    if not column.unit:
        if found.seconds >= 86400:
            return DECLINED
        text.data, text.size, text.room = digits, 0, 40
        put_day(&text, found)
        put_byte(&text, 84)
        put_clock(&text, found.seconds)
        put_iso_fraction(&text, found.micros)
        put_byte(&text, 90)
        return put_plain(out, column, digits, text.size)
    seconds = found.days * 86400 + found.seconds
    if column.unit == 1:
        if seconds < -9223372036 or seconds > 9223372035:
            return DECLINED
        return put_int(out, column, seconds * 1000000000 + found.micros * 1000)
    if column.exact and found.micros % (column.unit // 1000):
        return DECLINED
    return put_int(out, column, seconds * (1000000000 // column.unit) + found.micros // (column.unit // 1000))


cdef int put_time(Output *out, const Column *column, int64_t micros) noexcept:
    cdef unsigned char digits[24]
    cdef Output text
    if column.unit == 1000:
        return put_int(out, column, micros)
    if column.unit == 1:
        return put_int(out, column, micros * 1000)
    if micros < 0 or micros > 86400000000 - (column.unit == 0) or (column.exact and micros % 1000):
        return DECLINED
    if column.unit:
        return put_int(out, column, micros // 1000)
    text.data, text.size, text.room = digits, 0, 24
    put_clock(&text, micros // 1000000)
    put_iso_fraction(&text, micros % 1000000)
    put_byte(&text, 90)
    return put_plain(out, column, digits, text.size)


cdef int put_call(Output *out, PyObject *call, const unsigned char *data, Py_ssize_t size) except -1:
    """Append what a column's Python function makes of the bytes; DECLINED if it raises."""
    cdef object piece
    if call == NULL:
        return DECLINED
    try:
        piece = (<object> call)(PyBytes_FromStringAndSize(<const char *> data, size))
    except Exception:
        return DECLINED
    if type(piece) is not bytes:
        return DECLINED
    size = PyBytes_GET_SIZE(piece)
    reserve(out, size)
    put(out, <const unsigned char *> PyBytes_AS_STRING(piece), size)
    return DONE
