/*
 * Makes a directory tree "as people have them", for benchmarks of tree walks.
 *
 *   make_tree [--seed N] [--flat] [--sparse] DIR ENTRIES
 *
 * ENTRIES names that are not directories are made below DIR, which must be an empty directory; directories come on
 * top (8 % as many). With --flat all entries are in DIR itself. The same seed and number give the same tree.
 *
 * What is in it:
 *   - sizes after the VU 2005 survey (Tanenbaum, Herder, Bos: median 2.5 KB, mean about 82 KB, up to 2 GiB), 1.5 %
 *     empty
 *   - directory sizes with a heavy tail: mostly 1 to 5 entries, one directory with a tenth of all entries
 *   - depth 1 to 12, most directories at 4 to 8
 *   - names and extensions by kind of directory: source, photographs, logs, numbered and hashed objects, web, mail,
 *     documents
 *   - 1 % symbolic links, 0.5 % further hard links, a few fifos
 *   - times over 15 years, alike within a directory; nine owners (root only: otherwise everything is the caller's)
 *
 * Space is reserved with fallocate and never written, so a file has the blocks it would have, while the image below a
 * loop device grows by metadata only. --sparse, and every hundredth file, uses ftruncate instead and has no blocks.
 *
 * Output: one JSON object with the counts, for checking what a survey of the tree says.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { DEPTH_MAX = 12, NAME_BYTES = 256, WORDS = 127 /* prime, see stem() */, OWNERS = 9 };

static const time_t NEWEST = 1735689600; /* 2025-01-01: fixed, so that a tree does not depend on the day it is made */
static const double DAYS_MAX = 15 * 365.0;

/* Percent of files of at most this size: VU 2005, figure 1 of the paper; the last row is its largest file. */
static const struct { double bytes, percent; } SIZES[] = {
    {1, 1.38},          {2, 1.53},          {4, 1.65},          {8, 1.80},          {16, 2.15},
    {32, 3.15},         {64, 4.98},         {128, 8.03},        {256, 13.29},       {512, 20.62},
    {1024, 30.91},      {2048, 46.09},      {4096, 59.13},      {8192, 69.96},      {16384, 78.92},
    {32768, 85.87},     {65536, 90.84},     {131072, 93.73},    {262144, 96.12},    {524288, 97.73},
    {1048576, 98.87},   {2097152, 99.44},   {4194304, 99.71},   {8388608, 99.86},   {16777216, 99.94},
    {33554432, 99.97},  {67108864, 99.99},  {134217728, 99.997}, {2147483648.0, 100},
};
enum { SIZE_ROWS = sizeof SIZES / sizeof *SIZES };
static const double EMPTY_PERCENT = 1.5;

/* Weight of depth 1, 2, ... 12 among directories. */
static const int DEPTH_WEIGHT[DEPTH_MAX] = {1, 5, 10, 16, 22, 28, 24, 18, 12, 7, 4, 2};

static const char *WORD[WORDS] = {
    "account", "adapter", "agenda", "alpha",  "analysis", "archive", "arena",  "array",   "audio",   "backup",
    "balance", "base",    "batch",  "beta",   "billing",  "block",   "board",  "bridge",  "budget",  "buffer",
    "build",   "cache",   "camera", "catalog", "channel", "chart",   "client", "cluster", "codec",   "common",
    "config",  "console", "contract", "control", "core",  "course",  "crypto", "cursor",  "data",    "debug",
    "default", "delta",   "demo",   "design", "device",   "diagram", "driver", "editor",  "email",   "engine",
    "error",   "event",   "example", "export", "feature", "field",   "figure", "filter",  "final",   "font",
    "form",    "frame",   "gallery", "global", "graph",   "grid",    "group",  "handler", "header",  "history",
    "home",    "image",   "import", "index",  "input",    "invoice", "job",    "journal", "kernel",  "label",
    "layout",  "letter",  "library", "list",  "local",    "logger",  "main",   "manual",  "map",     "matrix",
    "media",   "memory",  "menu",   "message", "method",  "model",   "module", "monitor", "network", "node",
    "note",    "object",  "order",  "output", "package",  "page",    "parser", "patch",   "photo",   "plan",
    "player",  "plugin",  "policy", "profile", "project", "query",   "record", "report",  "result",  "schema",
    "script",  "server",  "session", "stream", "table",   "update",  "window",
};

enum kind { SOURCE, PHOTO, LOG, NUMBER, HASH, WEB, MAIL, DOCUMENT, KINDS };

/* ---- random numbers: splitmix64, one stream a directory ---- */

struct rng { uint64_t state; };

static uint64_t mix(uint64_t z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}
static uint64_t next(struct rng *r) { return mix(r->state += 0x9e3779b97f4a7c15u); }
static double uniform(struct rng *r) { return (double)(next(r) >> 11) * 0x1p-53; } /* [0, 1) */
static unsigned below(struct rng *r, unsigned n) { return (unsigned)(((next(r) >> 32) * n) >> 32); }

/* ---- the plan: directories and how many entries each has ---- */

struct plan {
    uint32_t parent, first_child, next_sibling; /* 0: none (0 is the root and nobody's child) */
    uint32_t entries;                           /* that are not directories */
    uint8_t depth, kind, owner;
    float days; /* typical age of what is in it */
};

static struct plan *plans;
static uint32_t plan_count;

static void fail(const char *what, const char *name) {
    fprintf(stderr, "make_tree: %s %s: %s\n", what, name, strerror(errno));
    exit(1);
}

static void *allocate(size_t count, size_t size) {
    void *p = calloc(count, size);
    if (!p) fail("allocate", "");
    return p;
}

static void plan_directories(struct rng *r) {
    uint32_t *level[DEPTH_MAX + 1], level_count[DEPTH_MAX + 1] = {1};
    for (int d = 0; d <= DEPTH_MAX; d++) level[d] = allocate(plan_count, sizeof **level);
    int weight_total = 0, deepest = 0;
    for (int d = 0; d < DEPTH_MAX; d++) weight_total += DEPTH_WEIGHT[d];

    plans[0].kind = DOCUMENT;
    plans[0].days = 100;
    for (uint32_t i = 1; i < plan_count; i++) {
        int draw = (int)below(r, (unsigned)weight_total), depth = 1;
        while (draw >= DEPTH_WEIGHT[depth - 1]) draw -= DEPTH_WEIGHT[depth++ - 1];
        if (depth > deepest + 1) depth = deepest + 1;
        if (depth > deepest) deepest = depth;
        double u = uniform(r);
        if (depth > 3) u *= u; /* some have many children, but no directory near the root holds most of the tree */
        uint32_t above = level[depth - 1][(uint32_t)(u * level_count[depth - 1])];
        level[depth][level_count[depth]++] = i;
        struct plan *p = &plans[i], *q = &plans[above];
        p->parent = above;
        p->next_sibling = q->first_child;
        q->first_child = i;
        p->depth = (uint8_t)depth;
        p->kind = depth > 1 && uniform(r) < 0.7 ? q->kind : (uint8_t)below(r, KINDS);
        p->owner = depth > 1 && uniform(r) < 0.75 ? q->owner : (uint8_t)below(r, OWNERS);
        double v = uniform(r);
        p->days = (float)(DAYS_MAX * v * v * v);
    }
    for (int d = 0; d <= DEPTH_MAX; d++) free(level[d]);
}

/* Pareto weights, cut off and scaled to the total; one directory takes a tenth of all. */
static void plan_entries(struct rng *r, uint32_t entries) {
    if (plan_count == 1) {
        plans[0].entries = entries;
        return;
    }
    uint32_t giant = plan_count / 2 + below(r, plan_count / 2), giant_entries = entries / 10;
    double *weight = allocate(plan_count, sizeof *weight), sum = 0, cut = entries / 40.0 + 1;
    for (uint32_t i = 0; i < plan_count; i++) {
        double w = pow(1 - uniform(r), -1 / 1.1);
        if (w > cut) w = cut;
        if (i == giant || (plans[i].first_child && uniform(r) < 0.3)) w = 0;
        sum += weight[i] = w;
    }
    int64_t left = (int64_t)entries - giant_entries;
    double scale = (double)left / sum, carry = 0;
    uint32_t largest = 0;
    for (uint32_t i = 0; i < plan_count; i++) {
        if (i == giant) continue;
        carry += weight[i] * scale;
        uint32_t n = (uint32_t)carry;
        carry -= n;
        if (n == 0 && !plans[i].first_child && uniform(r) < 0.9) n = 1; /* few directories are quite empty */
        plans[i].entries = n;
        left -= n;
        if (n > plans[largest].entries) largest = i;
    }
    plans[giant].entries = giant_entries;
    if ((int64_t)plans[largest].entries + left < 0) left = -(int64_t)plans[largest].entries;
    plans[largest].entries = (uint32_t)((int64_t)plans[largest].entries + left);
    free(weight);
}

/* ---- names: unique in a directory because each contains its index, or a bijection of it ---- */

/* A word for the first WORDS indices in an order of the directory's own, then words with numbers. */
static int stem(char *out, uint64_t salt, uint32_t index) {
    uint32_t step = 1 + (uint32_t)(salt >> 8) % (WORDS - 1);
    const char *word = WORD[((salt & 0xff) + (uint64_t)index * step) % WORDS];
    if (index < WORDS) return sprintf(out, "%s", word);
    return sprintf(out, "%s%s%u", word, salt & 0x100 ? "_" : "-", index / WORDS);
}

static const char *pick(struct rng *r, const char *const *list, unsigned count) {
    return list[below(r, count)];
}
#define PICK(r, ...) pick(r, (const char *const[]){__VA_ARGS__}, sizeof((const char *[]){__VA_ARGS__}) / sizeof(char *))

static void entry_name(char *out, struct rng *r, enum kind kind, uint64_t salt, uint32_t index) {
    int n;
    switch (kind) {
    case SOURCE:
        n = stem(out, salt, index);
        sprintf(out + n, "%s", PICK(r, ".c", ".c", ".h", ".h", ".o", ".py", ".cc", ".java", ".txt", ".js"));
        break;
    case PHOTO:
        sprintf(out, "%s%04u%s", salt & 1 ? "IMG_" : "DSC0", index + 1, PICK(r, ".jpg", ".jpg", ".jpg", ".jpg", ".JPG", ".cr2"));
        break;
    case LOG:
        n = stem(out, salt, 0);
        sprintf(out + n, "-20%02u%02u%02u-%u%s", (unsigned)(salt >> 16) % 15 + 10, index % 12 + 1, index % 28 + 1, index,
                PICK(r, ".log", ".log", ".log.gz", ".err", ".out"));
        break;
    case NUMBER:
        sprintf(out, salt & 1 ? "%08u" : "%u%s", index, PICK(r, ".dat", ".dat", ".csv", ".json", ".tmp"));
        break;
    case HASH:
        sprintf(out, "%016llx%016llx%06x", (unsigned long long)mix(salt + index), (unsigned long long)mix(salt ^ ~(uint64_t)index),
                index & 0xffffff);
        break;
    case WEB:
        n = stem(out, salt, index);
        sprintf(out + n, "%s", PICK(r, ".html", ".html", ".php", ".css", ".js", ".png", ".gif", ".svg"));
        break;
    case MAIL:
        sprintf(out, "%u.M%uP%u.mail,S=%u:2,%s", 1187650000u + (unsigned)(salt % 400000000) + index, below(r, 1000000),
                1000 + below(r, 30000), index, PICK(r, "S", "S", "RS", "", "ST"));
        break;
    default:
        n = stem(out, salt, index);
        sprintf(out + n, "%s%s", PICK(r, "", "", " 2009", " (copy)", " final", " r\xc3\xa9sum\xc3\xa9"),
                PICK(r, ".txt", ".pdf", ".doc", ".odt", ".xls", ".jpg", ".zip"));
    }
}

static int64_t file_size(struct rng *r) {
    double percent = uniform(r) * 100;
    if (percent < EMPTY_PERCENT) return 0;
    int row = 1;
    while (row < SIZE_ROWS - 1 && SIZES[row].percent < percent) row++;
    double low = SIZES[row - 1].percent, share = (percent - low) / (SIZES[row].percent - low);
    return (int64_t)ceil(SIZES[row - 1].bytes * pow(SIZES[row].bytes / SIZES[row - 1].bytes, share < 0 ? 0 : share));
}

/* ---- making it ---- */

static struct {
    uint64_t regular, extra_links, symlinks, special, directories, size_bytes, largest_directory, depth;
} made = {.directories = 1};
static uint64_t seed = 2005;
static int sparse, privileged;

static void become(uint8_t owner) {
    if (!privileged) return;
    uid_t id = owner ? 1000u + owner : 0;
    setfsgid(id);
    setfsuid(id); /* new files then belong to the owner without a chown each */
}

static struct timespec days_ago(double days) {
    return (struct timespec){.tv_sec = NEWEST - (time_t)(days * 86400), .tv_nsec = (long)(days * 1e6) % 1000000000};
}

static void regular_file(int dir, const char *name, struct rng *r, const struct plan *p) {
    int fd = openat(dir, name, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0644);
    if (fd < 0) fail("create", name);
    int64_t size = file_size(r);
    int holes = below(r, 100) == 0 || sparse;
    if (size > 0 && (holes ? ftruncate(fd, size) : fallocate(fd, 0, 0, size)) != 0) fail("reserve space for", name);
    double days = p->days * (0.5 + uniform(r));
    struct timespec times[2] = {days_ago(days * uniform(r)), days_ago(days)};
    if (futimens(fd, times) != 0) fail("set times of", name);
    close(fd);
    made.regular++;
    made.size_bytes += (uint64_t)size;
}

static void symbolic_link(int dir, const char *name, const char *previous, struct rng *r, uint64_t salt) {
    char target[4 * NAME_BYTES];
    switch (below(r, 5)) {
    case 0: sprintf(target, "/usr/share/%s/%s", WORD[salt % WORDS], previous[0] ? previous : "README"); break;
    case 1: sprintf(target, "../%s/%s", WORD[salt % WORDS], previous[0] ? previous : "README"); break;
    case 2: sprintf(target, "../../%s/%s/%s", WORD[below(r, WORDS)], WORD[below(r, WORDS)], name); break;
    default: sprintf(target, "%s", previous[0] ? previous : ".."); break;
    }
    if (symlinkat(target, dir, name) != 0) fail("symlink", name);
    made.symlinks++;
}

static void fill(int dir, uint32_t number) {
    const struct plan *p = &plans[number];
    struct rng r = {mix(seed * 0x2545f4914f6cdd1du + number)};
    uint64_t salt = next(&r);
    char name[NAME_BYTES], previous[NAME_BYTES] = "";
    become(p->owner);
    for (uint32_t i = 0; i < p->entries; i++) {
        entry_name(name, &r, (enum kind)p->kind, salt, i);
        double what = uniform(&r);
        if (what < 0.01) {
            symbolic_link(dir, name, previous, &r, salt);
        } else if (what < 0.0155 && previous[0]) {
            if (linkat(dir, previous, dir, name, 0) != 0) fail("link", name);
            made.extra_links++;
        } else if (what > 0.99998) {
            if (mkfifoat(dir, name, 0644) != 0) fail("fifo", name);
            made.special++;
        } else {
            regular_file(dir, name, &r, p);
            if (!previous[0] || below(&r, 4) == 0) strcpy(previous, name);
        }
    }
    become(0);
    uint64_t total = p->entries;
    uint32_t index = 0;
    for (uint32_t c = p->first_child; c; c = plans[c].next_sibling, index++, total++) {
        stem(name, salt ^ 0x55, index);
        if (mkdirat(dir, name, 0755) != 0) fail("mkdir", name);
        int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (fd < 0) fail("open", name);
        uid_t id = plans[c].owner ? 1000u + plans[c].owner : 0;
        if (privileged && id && fchown(fd, id, id) != 0) fail("chown", name);
        made.directories++;
        if (plans[c].depth > made.depth) made.depth = plans[c].depth;
        fill(fd, c);
        struct timespec times[2] = {days_ago(plans[c].days * 0.25), days_ago(plans[c].days * 0.5)};
        if (futimens(fd, times) != 0) fail("set times of", name);
        close(fd);
    }
    if (total > made.largest_directory) made.largest_directory = total;
}

int main(int argc, char **argv) {
    int flat = 0, at = 1;
    for (; at < argc && strncmp(argv[at], "--", 2) == 0; at++) {
        if (strcmp(argv[at], "--flat") == 0) flat = 1;
        else if (strcmp(argv[at], "--sparse") == 0) sparse = 1;
        else if (strcmp(argv[at], "--seed") == 0 && at + 1 < argc) seed = strtoull(argv[++at], NULL, 10);
        else break;
    }
    long long entries = at + 2 == argc ? atoll(argv[at + 1]) : 0;
    if (entries < 1 || entries > 100000000) {
        fprintf(stderr, "usage: make_tree [--seed N] [--flat] [--sparse] DIR ENTRIES   (1 to 100000000 entries)\n");
        return 2;
    }
    int root = open(argv[at], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (root < 0) fail("open", argv[at]);
    privileged = geteuid() == 0;
    umask(022);

    struct rng r = {mix(seed)};
    plan_count = flat ? 1 : (uint32_t)(entries / 100 * 8) + 1;
    plans = allocate(plan_count, sizeof *plans);
    plan_directories(&r);
    plan_entries(&r, (uint32_t)entries);
    if (flat) plans[0].kind = HASH;
    fill(root, 0);
    close(root);
    printf("{\"regular\": %llu, \"extra_links\": %llu, \"symlinks\": %llu, \"special\": %llu, \"directories\": %llu, "
           "\"size_bytes\": %llu, \"largest_directory\": %llu, \"depth\": %llu}\n",
           (unsigned long long)made.regular, (unsigned long long)made.extra_links, (unsigned long long)made.symlinks,
           (unsigned long long)made.special, (unsigned long long)made.directories, (unsigned long long)made.size_bytes,
           (unsigned long long)made.largest_directory, (unsigned long long)made.depth);
    return 0;
}
