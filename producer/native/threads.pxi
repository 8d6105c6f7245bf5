# What threads of Kafka's client and of Python share: locks, numbers, the clock.

cdef extern from "pythread.h":
    ctypedef void *PyThread_type_lock
    PyThread_type_lock PyThread_allocate_lock() noexcept nogil
    void PyThread_free_lock(PyThread_type_lock lock) noexcept nogil
    int PyThread_acquire_lock(PyThread_type_lock lock, int wait) noexcept nogil
    void PyThread_release_lock(PyThread_type_lock lock) noexcept nogil

cdef extern from *:
    """
    #include <time.h>

    /* Numbers that several threads change. Nothing else is published by them. */
    static int64_t add_to(int64_t *number, int64_t value) {
        return __atomic_add_fetch(number, value, __ATOMIC_RELAXED);
    }

    static int64_t value_of(const int64_t *number) {
        return __atomic_load_n(number, __ATOMIC_RELAXED);
    }

    static void set_to(int64_t *number, int64_t value) {
        __atomic_store_n(number, value, __ATOMIC_RELAXED);
    }

    static int64_t now_ns(void) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        return now.tv_sec * (int64_t) 1000000000 + now.tv_nsec;
    }

    static void sleep_ns(int64_t duration) {
        struct timespec rest = {0, duration};
        nanosleep(&rest, NULL);
    }
    """
    int64_t add_to(int64_t *number, int64_t value) noexcept nogil
    int64_t value_of(const int64_t *number) noexcept nogil
    void set_to(int64_t *number, int64_t value) noexcept nogil
    int64_t now_ns() noexcept nogil
    void sleep_ns(int64_t duration) noexcept nogil
