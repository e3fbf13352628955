/*
 * Nanoseconds of one LTTng-UST tracepoint, one thread: `record_bench SECONDS`.
 *
 * Prints `NS ns  on|off`; "on" when a session records the tracepoint. The loop is the one of ring_bench: the words change
 * with every event, the clock is looked at once in 10000 events, and it is the thread's processor time.
 */
#define TRACEPOINT_CREATE_PROBES
#define TRACEPOINT_DEFINE
#include "record_tp.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { WORDS = 14, BURST = 10000 };

static double now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

int main(int argc, char **argv)
{
    double limit_ns = (argc > 1 ? atof(argv[1]) : 1.0) * 1e9;
    int on = tracepoint_enabled(mycroft_bench, record) ? 1 : 0;
    double begin_ns = now_ns();
    double elapsed_ns;
    uint64_t words[WORDS];
    uint64_t n = 0;

    do {
        for (int i = 0; i < BURST; i++) {
            for (int w = 0; w < WORDS; w++)
                words[w] = n;
            tracepoint(mycroft_bench, record, words);
            n++;
        }
        elapsed_ns = now_ns() - begin_ns;
    } while (elapsed_ns < limit_ns);
    printf("%.2f ns  %s\n", elapsed_ns / n, on ? "on" : "off");
    return 0;
}
