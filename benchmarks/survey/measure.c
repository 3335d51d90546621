/*
 * Runs one command and writes what it used: wall time, CPU time and peak resident memory.
 *
 *   measure RESULT COMMAND [ARGUMENT]...
 *
 * RESULT receives one JSON object. This is a program of its own because Linux carries the peak resident size over
 * exec: a command started by Python would never show less than Python's own 10 MiB or more, and the programs measured
 * here use 2 to 10 MiB. The clock starts before fork and stops when wait4 returns.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double seconds(struct timeval t) {
    return (double)t.tv_sec + (double)t.tv_usec / 1e6;
}

int main(int argc, char **argv) {
    if (argc < 3) {
        fprintf(stderr, "usage: measure RESULT COMMAND [ARGUMENT]...\n");
        return 2;
    }
    struct timespec start, end;
    clock_gettime(CLOCK_MONOTONIC, &start);
    pid_t child = fork();
    if (child < 0) {
        perror("measure: fork");
        return 2;
    }
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* an interrupted benchmark leaves no process on the mount behind */
        execvp(argv[2], argv + 2);
        fprintf(stderr, "measure: %s: %s\n", argv[2], strerror(errno));
        _exit(127);
    }
    int status;
    struct rusage used;
    while (wait4(child, &status, 0, &used) < 0) {
        if (errno != EINTR) {
            perror("measure: wait4");
            return 2;
        }
    }
    clock_gettime(CLOCK_MONOTONIC, &end);
    FILE *out = fopen(argv[1], "w");
    if (!out) {
        fprintf(stderr, "measure: %s: %s\n", argv[1], strerror(errno));
        return 2;
    }
    fprintf(out,
            "{\"wall_seconds\": %.6f, \"user_seconds\": %.6f, \"system_seconds\": %.6f, \"peak_kib\": %ld, "
            "\"exit_status\": %d}\n",
            (double)(end.tv_sec - start.tv_sec) + (double)(end.tv_nsec - start.tv_nsec) / 1e9,
            seconds(used.ru_utime), seconds(used.ru_stime), used.ru_maxrss,
            WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
    return fclose(out) == 0 ? 0 : 2;
}
