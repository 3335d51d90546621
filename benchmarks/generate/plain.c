/*
 * The plain loop that `granulo generate` is compared with: openat, write, close, one file after the other.
 *
 *   plain [--none] LIST DIR
 *
 * LIST has a line for each entry, in the order in which it is made: "D path" for a directory, "C path" to go on in one
 * that was made, "F size name" for a file in it. It is read before the clock starts. DIR must be an empty directory.
 * What is written is one buffer of random bytes, made once; with --none the size is set with ftruncate and nothing is
 * written.
 *
 * Output: one JSON object: files, bytes, seconds of the loop, seconds of syncfs after it.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { PIECE = 1 << 20 };

static void fail(const char *what) {
    fprintf(stderr, "plain: %s: %s\n", what, strerror(errno));
    exit(1);
}

static double now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec + at.tv_nsec / 1e9;
}

static char *read_whole(const char *path, size_t *length) {
    FILE *file = fopen(path, "r");
    struct stat found;
    if (!file || fstat(fileno(file), &found) != 0) fail(path);
    char *text = malloc(found.st_size + 1);
    if (!text || fread(text, 1, found.st_size, file) != (size_t)found.st_size) fail(path);
    fclose(file);
    text[found.st_size] = 0;
    *length = found.st_size;
    return text;
}

static uint64_t make_file(int directory, const char *name, uint64_t size, int none, const char *buffer) {
    int file = openat(directory, name, O_CREAT | O_EXCL | O_WRONLY | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (file < 0) fail(name);
    if (none) {
        if (size > 0 && ftruncate(file, size) != 0) fail(name);
    } else {
        for (uint64_t left = size; left > 0;) {
            ssize_t written = write(file, buffer, left < PIECE ? left : PIECE);
            if (written <= 0) fail(name);
            left -= written;
        }
    }
    close(file);
    return size;
}

int main(int count, char **arguments) {
    int none = count == 4 && strcmp(arguments[1], "--none") == 0;
    if (count != 3 + none) {
        fprintf(stderr, "usage: plain [--none] LIST DIR\n");
        return 2;
    }
    size_t length;
    char *list = read_whole(arguments[count - 2], &length);
    int root = open(arguments[count - 1], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (root < 0) fail(arguments[count - 1]);
    char *buffer = malloc(PIECE);
    if (!buffer) fail("memory");
    uint64_t state = 1;
    for (size_t at = 0; at < PIECE; at += 8) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        uint64_t mixed = (state ^ (state >> 29)) * 0x9e3779b97f4a7c15u;
        memcpy(buffer + at, &mixed, 8);
    }
    uint64_t files = 0, bytes = 0;
    int directory = root;
    double started = now();
    for (char *line = list, *end; line < list + length; line = end + 1) {
        end = strchr(line, '\n');
        if (!end) break;
        *end = 0;
        if (line[0] == 'D') {
            if (mkdirat(root, line + 2, 0777) != 0) fail(line + 2);
        } else if (line[0] == 'C') {
            if (directory != root) close(directory);
            directory = openat(root, line + 2, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
            if (directory < 0) fail(line + 2);
        } else {
            char *name;
            uint64_t size = strtoull(line + 2, &name, 10);
            bytes += make_file(directory, name + 1, size, none, buffer);
            files++;
        }
    }
    double made = now();
    if (syncfs(root) != 0) fail("syncfs");
    printf("{\"files\": %llu, \"bytes\": %llu, \"seconds\": %.6f, \"sync_seconds\": %.6f}\n", (unsigned long long)files,
           (unsigned long long)bytes, made - started, now() - made);
    return 0;
}
