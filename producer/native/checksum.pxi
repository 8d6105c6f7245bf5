# CRC-32 as zlib computes it: by multiplication without carry where the processor has it, else eight bytes at a time.
#
# The folding is that of V. Gopal and others, "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ
# Instruction", Intel, 2009, with the constants of its appendix for the reflected polynomial of zlib and Ethernet.

cdef extern from *:
    """
    #if defined(__x86_64__) && defined(__GNUC__)
    #include <cpuid.h>
    #include <immintrin.h>

    static int can_fold(void) {
        unsigned int a, b, c = 0, d;
        return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_PCLMUL) && (c & bit_SSE4_1);
    }

    __attribute__((target("pclmul,sse4.1")))
    static inline __m128i fold(__m128i sum, __m128i next, __m128i by) {
        __m128i low = _mm_clmulepi64_si128(sum, by, 0x00), high = _mm_clmulepi64_si128(sum, by, 0x11);
        return _mm_xor_si128(_mm_xor_si128(low, high), next);
    }

    /* The state after size bytes: a multiple of 16, at least 64. */
    __attribute__((target("pclmul,sse4.1")))
    static uint32_t folded(uint32_t state, const unsigned char *data, Py_ssize_t size) {
        const __m128i *at = (const __m128i *) data;
        const __m128i by_64 = _mm_set_epi64x(0x01c6e41596, 0x0154442bd4);
        const __m128i by_16 = _mm_set_epi64x(0x00ccaa009e, 0x01751997d0);
        const __m128i by_8 = _mm_set_epi64x(0, 0x0163cd6124);
        const __m128i polynomial = _mm_set_epi64x(0x01f7011641, 0x01db710641);
        const __m128i words = _mm_set_epi32(0, -1, 0, -1);
        __m128i sum[4], next;
        int i;
        for (i = 0; i < 4; i++) sum[i] = _mm_loadu_si128(at++);
        sum[0] = _mm_xor_si128(sum[0], _mm_cvtsi32_si128((int) state));
        for (size -= 64; size >= 64; size -= 64)
            for (i = 0; i < 4; i++) sum[i] = fold(sum[i], _mm_loadu_si128(at++), by_64);
        for (i = 1; i < 4; i++) sum[i] = fold(sum[i - 1], sum[i], by_16);
        next = sum[3];
        for (; size >= 16; size -= 16) next = fold(next, _mm_loadu_si128(at++), by_16);
        /* 128 bits to 64, to 32: the last step is Barrett's reduction. */
        next = _mm_xor_si128(_mm_srli_si128(next, 8), _mm_clmulepi64_si128(next, by_16, 0x10));
        next = _mm_xor_si128(_mm_srli_si128(next, 4), _mm_clmulepi64_si128(_mm_and_si128(next, words), by_8, 0x00));
        sum[0] = _mm_and_si128(_mm_clmulepi64_si128(_mm_and_si128(next, words), polynomial, 0x10), words);
        next = _mm_xor_si128(next, _mm_clmulepi64_si128(sum[0], polynomial, 0x00));
        return (uint32_t) _mm_extract_epi32(next, 1);
    }
    #else
    static int can_fold(void) { return 0; }
    static uint32_t folded(uint32_t state, const unsigned char *data, Py_ssize_t size) { return state; }
    #endif
    """
    bint can_fold() noexcept nogil
    uint32_t folded(uint32_t state, const unsigned char *data, Py_ssize_t size) noexcept nogil

cdef enum:
    FOLDED = 64  # bytes: fewer are as fast by the table


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
cdef bint _can_fold = can_fold()


cdef uint32_t crc32(const unsigned char *data, Py_ssize_t size) noexcept:
    cdef uint32_t value = 0xFFFFFFFFU, low, high
    cdef Py_ssize_t whole
    if size >= FOLDED and _can_fold:
        whole = size & ~15
        value = folded(value, data, whole)
        data += whole
        size -= whole
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


def checksum(const unsigned char[::1] data):
    return crc32(&data[0], data.shape[0]) if data.shape[0] else 0
