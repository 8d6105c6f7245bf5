# What messages and buffers in flight have freed is kept by the process for those that follow.
#
# By default glibc gives the end of the heap back to the system whenever 128 KB of it are free, and merges small blocks
# when a large one is asked for: both after each commit. The pages that follow are new ones, which the system clears; on
# a virtual machine that was a sixth of the CPU time of a snapshot reader. An operator's own settings are left alone.
cdef extern from *:
    """
    #include <stdlib.h>
    #ifdef __GLIBC__
    #include <malloc.h>

    static void keep_freed_memory(void) {
        if (getenv("GLIBC_TUNABLES") == NULL) {
            mallopt(M_TRIM_THRESHOLD, 32 << 20);  /* at most so much is kept at the end of the heap */
            mallopt(M_MMAP_THRESHOLD, 8 << 20);   /* larger blocks are given back when they are freed */
            mallopt(M_MXFAST, 0);
        }
    }
    #else
    static void keep_freed_memory(void) {}
    #endif
    """
    void keep_freed_memory() noexcept nogil

keep_freed_memory()
