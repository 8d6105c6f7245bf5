# Numbers whose first byte is the least one.

cdef inline uint32_t number_of_4(const unsigned char *data) noexcept:
    return data[0] | <uint32_t> data[1] << 8 | <uint32_t> data[2] << 16 | <uint32_t> data[3] << 24


cdef inline uint64_t number_of_7(const unsigned char *data) noexcept:
    return number_of_4(data) | <uint64_t> (data[4] | data[5] << 8 | data[6] << 16) << 32
