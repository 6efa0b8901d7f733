/* Writes down what a program asks of the file system, in order, so that a test can build every state that a
 * loss of power may leave. Loaded with LD_PRELOAD; needs no privilege. Each record is
 *   op (1 byte) | file (8) | offset (8) | length (8) | length bytes
 * in the machine's byte order. A file is known by its device and inode. Every call is made under one lock, so
 * the order on record is the order in which things happened. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static int record = -1;

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

__attribute__((constructor)) static void begin(void) {
  const char *path = getenv("MERKWELT_RECORD");
  if (path) record = REAL(open)(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
}

static void put(const void *bytes, size_t length) {
  static ssize_t (*real)(int, const void *, size_t);
  if (!real) real = REAL(write);
  while (length > 0) {
    ssize_t done = real(record, bytes, length);
    if (done <= 0) abort();
    bytes = (const char *)bytes + done;
    length -= (size_t)done;
  }
}

static void note(char op, uint64_t file, uint64_t offset, const void *bytes, uint64_t length) {
  if (record < 0) return;
  int kept = errno;
  put(&op, 1);
  put(&file, 8);
  put(&offset, 8);
  put(&length, 8);
  put(bytes, length);
  errno = kept;
}

/* What kind of thing a descriptor is: 'f' file, 'd' directory, 's' socket or pipe. */
static char kind(int fd, uint64_t *file) {
  struct stat st;
  if (fd == record || fstat(fd, &st)) return 0;
  *file = st.st_ino;
  if (S_ISREG(st.st_mode)) return 'f';
  if (S_ISDIR(st.st_mode)) return 'd';
  return S_ISSOCK(st.st_mode) || S_ISFIFO(st.st_mode) ? 's' : 0;
}

static void full(const char *path, char *out) {
  if (path[0] == '/') {
    snprintf(out, PATH_MAX, "%s", path);
  } else {
    char cwd[PATH_MAX / 2];
    snprintf(out, PATH_MAX, "%s/%s", getcwd(cwd, sizeof cwd) ? cwd : "", path);
  }
}

static void named(char op, uint64_t file, const char *path) {
  char whole[PATH_MAX];
  full(path, whole);
  note(op, file, 0, whole, strlen(whole));
}

static int opened(int fd, const char *path, int existed, int flags) {
  uint64_t file;
  if (fd >= 0 && kind(fd, &file) == 'f') {
    if (!existed) named('c', file, path);
    if (flags & O_TRUNC) note('t', file, 0, "", 0);
  }
  return fd;
}

#define OPEN(name)                                                        \
  int name(const char *path, int flags, ...) {                            \
    va_list rest;                                                         \
    va_start(rest, flags);                                                \
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0; \
    va_end(rest);                                                         \
    pthread_mutex_lock(&lock);                                            \
    int existed = access(path, F_OK) == 0;                                \
    int fd = opened(REAL(name)(path, flags, mode), path, existed, flags); \
    pthread_mutex_unlock(&lock);                                          \
    return fd;                                                            \
  }
OPEN(open)
OPEN(open64)

static void written(int fd, uint64_t offset, const void *bytes, ssize_t length) {
  uint64_t file;
  char what = length > 0 ? kind(fd, &file) : 0;
  if (what == 'f') note('w', file, offset, bytes, (uint64_t)length);
  if (what == 's') note('a', 0, 0, bytes, (uint64_t)length);
}

#define WRITE(name, type, call, offset, ...)          \
  ssize_t name(int fd, const type *b, size_t n, ##__VA_ARGS__) { \
    pthread_mutex_lock(&lock);                        \
    ssize_t done = REAL(name) call;                   \
    if (record >= 0) written(fd, offset, b, done);    \
    pthread_mutex_unlock(&lock);                      \
    return done;                                      \
  }
WRITE(write, void, (fd, b, n), (uint64_t)(lseek(fd, 0, SEEK_CUR) - (done > 0 ? done : 0)))
WRITE(pwrite, void, (fd, b, n, at), (uint64_t)at, off_t at)
WRITE(pwrite64, void, (fd, b, n, at), (uint64_t)at, off64_t at)
WRITE(send, void, (fd, b, n, f), 0, int f)

ssize_t writev(int fd, const struct iovec *parts, int n) {
  pthread_mutex_lock(&lock);
  uint64_t at = (uint64_t)lseek(fd, 0, SEEK_CUR);
  ssize_t done = REAL(writev)(fd, parts, n), left = done;
  for (int i = 0; i < n && left > 0 && record >= 0; i++) {
    ssize_t part = (ssize_t)parts[i].iov_len < left ? (ssize_t)parts[i].iov_len : left;
    written(fd, at, parts[i].iov_base, part);
    at += (uint64_t)part;
    left -= part;
  }
  pthread_mutex_unlock(&lock);
  return done;
}

#define CUT(name, type)                                          \
  int name(int fd, type length) {                                \
    pthread_mutex_lock(&lock);                                   \
    uint64_t file;                                               \
    int done = REAL(name)(fd, length);                           \
    if (!done && kind(fd, &file) == 'f') note('t', file, (uint64_t)length, "", 0); \
    pthread_mutex_unlock(&lock);                                 \
    return done;                                                 \
  }
CUT(ftruncate, off_t)
CUT(ftruncate64, off64_t)

#define SYNC(name)                                               \
  int name(int fd) {                                             \
    pthread_mutex_lock(&lock);                                   \
    uint64_t file;                                               \
    int done = REAL(name)(fd);                                   \
    char what = done ? 0 : kind(fd, &file);                      \
    if (what == 'f') note('s', file, 0, "", 0);                  \
    if (what == 'd') {                                           \
      char link[32], path[PATH_MAX] = "";                        \
      snprintf(link, sizeof link, "/proc/self/fd/%d", fd);       \
      ssize_t n = readlink(link, path, sizeof path - 1);         \
      note('S', file, 0, path, n > 0 ? (uint64_t)n : 0);         \
    }                                                            \
    pthread_mutex_unlock(&lock);                                 \
    return done;                                                 \
  }
SYNC(fsync)
SYNC(fdatasync)

int mkdir(const char *path, mode_t mode) {
  pthread_mutex_lock(&lock);
  int done = REAL(mkdir)(path, mode);
  if (!done) named('m', 0, path);
  pthread_mutex_unlock(&lock);
  return done;
}

static int gone(int done, const char *path) {
  if (!done) named('u', 0, path);
  return done;
}

int unlink(const char *path) {
  pthread_mutex_lock(&lock);
  int done = gone(REAL(unlink)(path), path);
  pthread_mutex_unlock(&lock);
  return done;
}

int rmdir(const char *path) {
  pthread_mutex_lock(&lock);
  int done = gone(REAL(rmdir)(path), path);
  pthread_mutex_unlock(&lock);
  return done;
}

int rename(const char *from, const char *to) {
  pthread_mutex_lock(&lock);
  int done = REAL(rename)(from, to);
  if (!done) {
    char both[2 * PATH_MAX];
    full(from, both);
    size_t n = strlen(both) + 1;
    full(to, both + n);
    note('r', 0, n, both, n + strlen(both + n));
  }
  pthread_mutex_unlock(&lock);
  return done;
}
