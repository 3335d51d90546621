/*
 * The floor of a survey: what the kernel alone costs.
 *
 * Reads every directory below DIR with getdents64 (64 KiB buffer) and calls statx once for every entry, relative to
 * the descriptor of the directory, so that each look-up is one component long. It adds up sizes and blocks and
 * records nothing else. Any program that must stat every file does at least this work, so the time of this loop is
 * what a survey is compared with.
 *
 *   floor THREADS DIR
 *
 * Directories wait on one last-in, first-out list that all threads share. A thread takes a directory from it and
 * owns it until it is read. A directory stays open until its last child directory has been opened, because
 * children are opened by name relative to it. Memory is allocated for directories only, never for files.
 *
 * Output: one JSON object. "regular" counts names, so a file with two links counts twice, and so does its size.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { BUFFER_BYTES = 64 * 1024, THREADS_MAX = 256 };

static const unsigned STATX_FIELDS = STATX_TYPE | STATX_MODE | STATX_NLINK | STATX_UID | STATX_ATIME | STATX_MTIME |
                                     STATX_CTIME | STATX_INO | STATX_SIZE | STATX_BLOCKS;
static const int STATX_FLAGS = AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT | AT_STATX_DONT_SYNC;

struct kernel_dirent {
    uint64_t inode;
    int64_t offset;
    uint16_t length;
    uint8_t type;
    char name[];
};

struct directory {
    struct directory *parent;
    struct directory *next;
    atomic_int references; /* one while it is read, and one for each child not opened yet */
    int fd;
    char name[];
};

struct totals {
    uint64_t regular, symlinks, special, directories, size_bytes, allocated_bytes, errors;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t wake = PTHREAD_COND_INITIALIZER;
static struct directory *stack;  /* under lock */
static uint64_t unfinished;      /* under lock: directories on the stack or being read */
static unsigned waiting;         /* under lock: threads asleep */

static struct directory *directory_new(struct directory *parent, const char *name) {
    size_t name_bytes = strlen(name) + 1;
    struct directory *d = malloc(sizeof *d + name_bytes);
    if (!d) {
        perror("floor: malloc");
        exit(2);
    }
    d->parent = parent;
    d->next = NULL;
    d->fd = -1;
    atomic_init(&d->references, 1);
    memcpy(d->name, name, name_bytes);
    return d;
}

static void directory_release(struct directory *d) {
    if (atomic_fetch_sub_explicit(&d->references, 1, memory_order_acq_rel) == 1) {
        if (d->fd >= 0) close(d->fd);
        free(d);
    }
}

static void push(struct directory *first, struct directory *last, unsigned count) {
    pthread_mutex_lock(&lock);
    last->next = stack;
    stack = first;
    unfinished += count;
    unsigned sleepers = waiting < count ? waiting : count;
    pthread_mutex_unlock(&lock);
    while (sleepers--) pthread_cond_signal(&wake);
}

/* The next directory, or NULL when all are read. `finished` says that the caller has just read one. */
static struct directory *pop(int finished) {
    pthread_mutex_lock(&lock);
    if (finished && --unfinished == 0) pthread_cond_broadcast(&wake);
    while (!stack && unfinished) {
        waiting++;
        pthread_cond_wait(&wake, &lock);
        waiting--;
    }
    struct directory *d = stack;
    if (d) stack = d->next;
    pthread_mutex_unlock(&lock);
    return d;
}

static int is_dot(const char *name) {
    return name[0] == '.' && (name[1] == 0 || (name[1] == '.' && name[2] == 0));
}

static void read_directory(struct directory *d, char *buffer, struct totals *t) {
    int at = d->parent ? d->parent->fd : AT_FDCWD;
    int fd = openat(at, d->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (d->parent) directory_release(d->parent);
    d->parent = NULL;
    d->fd = fd;
    t->directories++;
    if (fd < 0) {
        t->errors++;
        return;
    }
    for (;;) {
        long got = syscall(SYS_getdents64, fd, buffer, BUFFER_BYTES);
        if (got < 0) t->errors++;
        if (got <= 0) break;
        struct directory *first = NULL, *last = NULL;
        unsigned count = 0;
        for (long at_byte = 0; at_byte < got;) {
            struct kernel_dirent *entry = (struct kernel_dirent *)(buffer + at_byte);
            at_byte += entry->length;
            if (is_dot(entry->name)) continue;
            struct statx st;
            if (statx(fd, entry->name, STATX_FLAGS, STATX_FIELDS, &st) != 0) {
                t->errors++;
                continue;
            }
            switch (st.stx_mode & S_IFMT) {
            case S_IFREG:
                t->regular++;
                t->size_bytes += st.stx_size;
                t->allocated_bytes += st.stx_blocks * 512;
                break;
            case S_IFDIR: {
                struct directory *child = directory_new(d, entry->name);
                child->next = first;
                first = child;
                if (!last) last = child;
                count++;
                break;
            }
            case S_IFLNK:
                t->symlinks++;
                break;
            default:
                t->special++;
            }
        }
        if (count) {
            atomic_fetch_add_explicit(&d->references, (int)count, memory_order_relaxed);
            push(first, last, count);
        }
    }
}

static void *work(void *argument) {
    struct totals *result = argument, local = {0};
    char *buffer = malloc(BUFFER_BYTES);
    if (!buffer) {
        perror("floor: malloc");
        exit(2);
    }
    struct directory *d = pop(0);
    while (d) {
        read_directory(d, buffer, &local);
        directory_release(d);
        d = pop(1);
    }
    free(buffer);
    *result = local;
    return NULL;
}

int main(int argc, char **argv) {
    int threads = argc == 3 ? atoi(argv[1]) : 0;
    if (threads < 1 || threads > THREADS_MAX) {
        fprintf(stderr, "usage: floor THREADS DIR   (1 to %d threads)\n", THREADS_MAX);
        return 2;
    }
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    struct directory *root = directory_new(NULL, argv[2]);
    push(root, root, 1);

    static struct totals totals[THREADS_MAX];
    static pthread_t handles[THREADS_MAX];
    for (int i = 1; i < threads; i++) {
        int error = pthread_create(&handles[i], NULL, work, &totals[i]);
        if (error) {
            fprintf(stderr, "floor: pthread_create: %s\n", strerror(error));
            return 2;
        }
    }
    work(&totals[0]);
    struct totals sum = totals[0];
    for (int i = 1; i < threads; i++) {
        pthread_join(handles[i], NULL);
        sum.regular += totals[i].regular;
        sum.symlinks += totals[i].symlinks;
        sum.special += totals[i].special;
        sum.directories += totals[i].directories;
        sum.size_bytes += totals[i].size_bytes;
        sum.allocated_bytes += totals[i].allocated_bytes;
        sum.errors += totals[i].errors;
    }
    printf("{\"regular\": %llu, \"symlinks\": %llu, \"special\": %llu, \"directories\": %llu, \"size_bytes\": %llu, "
           "\"allocated_bytes\": %llu, \"errors\": %llu}\n",
           (unsigned long long)sum.regular, (unsigned long long)sum.symlinks, (unsigned long long)sum.special,
           (unsigned long long)sum.directories, (unsigned long long)sum.size_bytes,
           (unsigned long long)sum.allocated_bytes, (unsigned long long)sum.errors);
    return sum.errors ? 1 : 0;
}
