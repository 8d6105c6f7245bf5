# CRC-32 as zlib computes it, eight bytes at a time.

cdef uint32_t _CRC[8][256]


cdef void _fill_crc() noexcept:
    cdef uint32_t i, k, value
    for i in range(256):
        value = i
        for k in range(8):
            value = (value >> 1) ^ (0xEDB88320U if value & 1 else 0)
        _CRC[0][i] = value
    for i in range(256):
        for k in range(1, 8):
            _CRC[k][i] = (_CRC[k - 1][i] >> 8) ^ _CRC[0][_CRC[k - 1][i] & 255]


_fill_crc()


cdef uint32_t crc32(const unsigned char *data, Py_ssize_t size) noexcept:
    cdef uint32_t value = 0xFFFFFFFFU, low, high
    while size >= 8:
        low, high = value ^ number_of_4(data), number_of_4(data + 4)
        value = (
            _CRC[7][low & 255]
            ^ _CRC[6][low >> 8 & 255]
            ^ _CRC[5][low >> 16 & 255]
            ^ _CRC[4][low >> 24]
            ^ _CRC[3][high & 255]
            ^ _CRC[2][high >> 8 & 255]
            ^ _CRC[1][high >> 16 & 255]
            ^ _CRC[0][high >> 24]
        )
        data += 8
        size -= 8
    while size:
        value = (value >> 8) ^ _CRC[0][(value ^ data[0]) & 255]
        data += 1
        size -= 1
    return value ^ 0xFFFFFFFFU
