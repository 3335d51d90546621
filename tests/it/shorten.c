/*
 * Short calls: runs a command and makes some of its reads, writes and listings short, as POSIX allows for any of them.
 *
 *   shorten SEED ONE_IN COMMAND ARGUMENTS...
 *
 * It stops each thread of the command before a call, lowers the count in its register and restores the register
 * afterwards, so the kernel really transfers fewer bytes than were asked for and says so: unlike a return value that
 * strace injects, nothing is claimed that has not happened. One call in ONE_IN is made short, from SEED, once the
 * program's own code runs: the dynamic loader takes short reads for damage. The exit status is that of the command; how
 * many calls were short is printed to descriptor 3.
 */
#include <elf.h>
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__x86_64__)
typedef struct user_regs_struct Registers;
#define NUMBER(r) ((long)(r).orig_rax)
#define COUNT(r) ((r).rdx)
#elif defined(__aarch64__)
typedef struct user_regs_struct Registers;
#define NUMBER(r) ((long)(r).regs[8])
#define COUNT(r) ((r).regs[2])
#else
#error "shorten.c does not know the registers of this machine"
#endif

/* The longest entry of a directory: a smaller buffer is refused, which is not a short call. */
enum { ENTRY = 280, BLOCK = 4096, DIRECT = 512 << 10, MOST = 4096 };

/* A thread that is in a call whose count was lowered, and the count that it had. */
static struct {
    pid_t thread;
    int is_inside, is_short;
    unsigned long long count;
} threads[MOST];
static uint64_t state;

static uint64_t any(void) {
    state += 0x9e3779b97f4a7c15u;
    uint64_t z = state;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static int place(pid_t thread) {
    int i = 0;
    while (i < MOST && threads[i].thread != thread && threads[i].thread != 0) i++;
    if (i == MOST) exit(99);
    threads[i].thread = thread;
    return i;
}

static int registers(int request, pid_t thread, Registers *r) {
    struct iovec area = {r, sizeof *r};
    return ptrace(request, thread, (void *)NT_PRSTATUS, &area) == 0;
}

/* A count that is more than 0 and less than this one; direct writes stay in whole blocks. */
static unsigned long long shorter(unsigned long long count, int is_listing) {
    if (is_listing) return count <= ENTRY ? count : ENTRY + any() % (count - ENTRY);
    if (count < 2) return count;
    unsigned long long less = 1 + any() % (count - 1);
    return count < DIRECT ? less : less < BLOCK ? BLOCK : less - less % BLOCK;
}

int main(int argc, char **argv) {
    if (argc < 4) return 99;
    state = strtoull(argv[1], NULL, 10);
    unsigned long one_in = strtoul(argv[2], NULL, 10), calls = 0, shortened = 0;
    int is_loaded = 0;
    pid_t first = fork();
    if (first == 0) {
        close(3);
        if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0) _exit(98);
        raise(SIGSTOP);
        execv(argv[3], argv + 3);
        _exit(99);
    }
    int status = 0, code = 99;
    if (waitpid(first, &status, 0) != first || !WIFSTOPPED(status)) return 98;
    long options = PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK |
                   PTRACE_O_TRACEEXEC | PTRACE_O_EXITKILL;
    if (ptrace(PTRACE_SETOPTIONS, first, NULL, (void *)options) != 0) return 98;
    ptrace(PTRACE_SYSCALL, first, NULL, NULL);
    for (;;) {
        pid_t thread = waitpid(-1, &status, __WALL);
        if (thread < 0) {
            if (errno == EINTR) continue;
            break;
        }
        int at = place(thread);
        if (WIFEXITED(status) || WIFSIGNALED(status)) {
            if (thread == first) code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
            threads[at].thread = -1;
            continue;
        }
        int signal = WSTOPSIG(status);
        if (signal == (SIGTRAP | 0x80)) {
            signal = 0;
            Registers r;
            threads[at].is_inside = !threads[at].is_inside;
            if (threads[at].is_inside && registers(PTRACE_GETREGSET, thread, &r)) {
                long number = NUMBER(r);
                int is_listing = number == SYS_getdents64;
                /* Rust's first steps. */
                is_loaded |= number == SYS_sigaltstack;
                if (is_loaded && (is_listing || number == SYS_read || number == SYS_write || number == SYS_pread64 ||
                                  number == SYS_pwrite64)) {
                    unsigned long long count = COUNT(r), less = shorter(count, is_listing);
                    calls++;
                    if (any() % one_in == 0 && less < count) {
                        COUNT(r) = less;
                        if (!registers(PTRACE_SETREGSET, thread, &r)) return 98;
                        threads[at].is_short = 1;
                        threads[at].count = count;
                        shortened++;
                    }
                }
            } else if (threads[at].is_short && registers(PTRACE_GETREGSET, thread, &r)) {
                COUNT(r) = threads[at].count;
                if (!registers(PTRACE_SETREGSET, thread, &r)) return 98;
                threads[at].is_short = 0;
            }
        } else if (signal == SIGTRAP || signal == SIGSTOP) {
            /* A new thread, an event, or the start. */
            signal = 0;
        }
        ptrace(PTRACE_SYSCALL, thread, NULL, (void *)(long)signal);
    }
    dprintf(3, "%lu of %lu\n", shortened, calls);
    return code;
}
