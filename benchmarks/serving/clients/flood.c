/* Generates load in an open or a closed loop over kept-alive HTTP/1.1 connections, faster than Python can. `flood.py`
 * compiles it and supplies the arguments.
 *
 *   flood CORE INDEX COUNT START PORT REQUEST EXPECTED ROWS POLLS PATIENCE LATEST CONNECTIONS WARM_UP SECONDS
 *         [RATE SECONDS]...
 *
 * One process can send only what one core can. So COUNT processes share an open loop: process INDEX sends every
 * COUNT-th request of it. All of them begin at START, in seconds of CLOCK_MONOTONIC; 0: at once.
 *
 * Writes to ROWS, for each request, four numbers: when it was due, its latency, the status (0: none came), whether its
 * body was the expected one. Prints how long it took, and how many requests of the open loop were never sent, because
 * this program would have sent them more than LATEST seconds after they were due. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { MOST = 4096, LONGEST_ANSWER = 1 << 20, EVENTS = 256 };

struct connection {
  int fd, is_busy, is_writing;
  size_t sent, received, size;
  double due;
  char* answer;
};

static struct connection all[MOST];
static int idle[MOST], idle_count, busy_count;
static int epoll, port, polls;
static char *request, *expected;
static size_t request_bytes, expected_bytes;
static FILE* rows;
static long unsent;
static double latest, begun, counts_from, ends, last; /* `ends`, `last`: for a closed loop only, else 0 */

static double now(void) {
  struct timespec at;
  clock_gettime(CLOCK_MONOTONIC, &at);
  return (double)at.tv_sec + 1e-9 * (double)at.tv_nsec;
}

static void fail(const char* what) {
  perror(what);
  exit(1);
}

static char* contents(const char* path, size_t* bytes) {
  int fd = open(path, O_RDONLY);
  struct stat about;
  if (fd < 0 || fstat(fd, &about) != 0) fail(path);
  char* data = malloc((size_t)about.st_size + 1);
  if (data == NULL || read(fd, data, (size_t)about.st_size) != about.st_size) fail(path);
  close(fd);
  *bytes = (size_t)about.st_size;
  return data;
}

static void record(const struct connection* one, int status, int right) {
  double at = now(), row[4] = {one->due - counts_from, at - one->due, status, right};
  if (ends > 0 && (at < counts_from || at > ends)) return;
  last = at;
  if (fwrite(row, sizeof row, 1, rows) != 1) fail("the rows");
}

static void watch(struct connection* one, int operation) {
  struct epoll_event event = {EPOLLIN | (one->is_writing ? EPOLLOUT : 0), {.ptr = one}};
  if (epoll_ctl(epoll, operation, one->fd, &event) != 0) fail("epoll_ctl");
}

static void make_connection(struct connection* one) {
  int yes = 1, buffer = 1 << 20;
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  one->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (one->fd < 0) fail("socket");
  setsockopt(one->fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  setsockopt(one->fd, SOL_SOCKET, SO_SNDBUF, &buffer, sizeof buffer);
  connect(one->fd, (struct sockaddr*)&address, sizeof address); /* the reader sees an error */
  one->is_writing = 1;
  if (one->answer == NULL && (one->answer = malloc(LONGEST_ANSWER)) == NULL) fail("malloc");
  watch(one, EPOLL_CTL_ADD);
}

static void send_rest(struct connection* one) {
  while (one->sent < request_bytes) {
    ssize_t count = send(one->fd, request + one->sent, request_bytes - one->sent, MSG_NOSIGNAL);
    if (count < 0) break; /* the reader sees an error, too */
    one->sent += (size_t)count;
  }
  int is_writing = one->sent < request_bytes;
  if (is_writing == one->is_writing) return;
  one->is_writing = is_writing;
  watch(one, EPOLL_CTL_MOD);
}

static void ask(double due) {
  struct connection* one = NULL;
  if (idle_count > 0) {
    one = &all[idle[--idle_count]];
  } else {
    for (int at = 0; one == NULL; ++at) {
      if (all[at].fd < 0) one = &all[at];
    }
    make_connection(one);
  }
  ++busy_count;
  one->is_busy = 1;
  one->due = due;
  one->sent = one->received = one->size = 0;
  send_rest(one);
}

static void drop(struct connection* one) {
  close(one->fd);
  one->fd = -1;
}

static void end(struct connection* one, int status, int right, int keeps) {
  record(one, status, right);
  one->is_busy = 0;
  --busy_count;
  if (keeps) {
    idle[idle_count++] = (int)(one - all);
  } else {
    drop(one);
  }
}

/* Returns a pointer to a header's value, which ends with its line; null if the header is missing. */
static const char* header(char* head, const char* name) {
  char* found = strcasestr(head, name);
  return found == NULL ? NULL : found + strlen(name);
}

static int receive(struct connection* one) {
  ssize_t count = recv(one->fd, one->answer + one->received, LONGEST_ANSWER - 1 - one->received, 0);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
  if (!one->is_busy) { /* the server has closed an idle connection */
    for (int at = 0; at < idle_count; ++at) {
      if (&all[idle[at]] == one) idle[at--] = idle[--idle_count];
    }
    drop(one);
    return 0;
  }
  if (count <= 0) {
    end(one, 0, 1, 0);
    return 1;
  }
  one->received += (size_t)count;
  one->answer[one->received] = 0;
  char* body = memmem(one->answer, one->received, "\r\n\r\n", 4);
  if (body == NULL) return 0;
  if (one->size == 0) {
    *body = 0;
    const char* length = header(one->answer, "\r\ncontent-length:");
    if (length == NULL) fail("an answer without Content-Length");
    one->size = (size_t)(body + 4 - one->answer) + strtoul(length, NULL, 10);
    *body = '\r';
    if (one->size >= LONGEST_ANSWER) fail("an answer that is too long");
  }
  if (one->received < one->size) return 0;
  *body = 0;
  int status = atoi(one->answer + strlen("HTTP/1.1 "));
  int keeps = header(one->answer, "\r\nconnection: close") == NULL && one->sent == request_bytes;
  size_t bytes = one->size - (size_t)(body + 4 - one->answer);
  int right = status != 200 || expected == NULL || (bytes == expected_bytes && memcmp(body + 4, expected, bytes) == 0);
  end(one, status, right, keeps);
  return 1;
}

/* Handles the connections' events, and returns how many requests were answered. */
static int progress(double until) {
  struct epoll_event events[EVENTS];
  int count = epoll_wait(epoll, events, EVENTS, 0), answered = 0;
  if (count == 0 && !polls && until > now()) {
    double left = until - now();
    struct pollfd readable = {epoll, POLLIN, 0};
    struct timespec limit = {(time_t)left, (long)(1e9 * (left - (double)(time_t)left))};
    if (ppoll(&readable, 1, &limit, NULL) > 0) count = epoll_wait(epoll, events, EVENTS, 0);
  }
  for (int at = 0; at < count; ++at) {
    struct connection* one = events[at].data.ptr;
    if (one->fd < 0) continue;
    if (events[at].events & EPOLLOUT) send_rest(one);
    if (events[at].events & ~(uint32_t)EPOLLOUT) answered += receive(one);
  }
  return answered;
}

static double closed_loop(int connections, double warm_up, double seconds, double patience) {
  counts_from = begun + warm_up;
  ends = counts_from + seconds;
  for (int at = 0; at < connections; ++at) ask(now());
  while (busy_count > 0 && now() < ends + patience) {
    int answered = progress(now() + 0.1);
    for (; answered > 0 && now() < ends; --answered) ask(now());
  }
  return busy_count > 0 || last == 0 ? seconds : last - counts_from;
}

static double open_loop(char** phases, int count, double patience, long index, long processes) {
  double begins = begun + 1e-3;
  begun = counts_from = begins;
  for (int phase = 0; phase + 1 < count; phase += 2) {
    double rate = atof(phases[phase]), seconds = atof(phases[phase + 1]);
    long most = (long)(rate * seconds + 0.5);
    for (long each = index, asked = 0; each < most;) {
      double due = begins + (double)each / rate;
      if (due + latest < now()) {
        each += processes, ++unsent;
        continue;
      }
      if (due <= now() && busy_count < MOST) {
        ask(due);
        each += processes;
        if (++asked % 8 != 0) continue; /* a late sender also handles the others' events */
      }
      progress(due);
    }
    begins += seconds;
  }
  /* The patience counts from now: a generator that is behind its schedule has sent some of the requests just now, and
   * the server must get time to answer them. */
  double gives_up = now() + patience;
  while (busy_count > 0 && now() < gives_up) progress(now() + 0.1);
  return now() - begun;
}

int main(int count, char** words) {
  if (count < 15) return 2;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  cpu_set_t core;
  CPU_ZERO(&core);
  CPU_SET(atoi(words[1]), &core);
  if (atoi(words[1]) >= 0 && sched_setaffinity(0, sizeof core, &core) != 0) fail("sched_setaffinity");
  long index = atol(words[2]), processes = atol(words[3]);
  double start = atof(words[4]);
  words += 3;
  count -= 3;
  port = atoi(words[2]);
  request = contents(words[3], &request_bytes);
  expected = words[4][0] != 0 ? contents(words[4], &expected_bytes) : NULL;
  rows = fopen(words[5], "wb");
  polls = atoi(words[6]);
  epoll = epoll_create1(0);
  if (rows == NULL || epoll < 0) fail(words[5]);
  for (int at = 0; at < MOST; ++at) all[at].fd = -1;
  struct rlimit files;
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
  while (now() < start) {
    double left = start - now();
    struct timespec pause = {(time_t)left, (long)(1e9 * (left - (double)(time_t)left))};
    if (left > 0) nanosleep(&pause, NULL);
  }
  begun = start > 0 ? start : now();
  double patience = atof(words[7]), elapsed;
  latest = atof(words[8]);
  if (atoi(words[9]) > 0) {
    elapsed = closed_loop(atoi(words[9]), atof(words[10]), atof(words[11]), patience);
  } else {
    elapsed = open_loop(words + 12, count - 12, patience, index, processes);
  }
  for (int at = 0; at < MOST; ++at) {
    if (all[at].fd >= 0 && all[at].is_busy) record(&all[at], 0, 1);
  }
  if (fclose(rows) != 0) fail(words[5]);
  printf("%.9f %ld\n", elapsed, unsent);
  return 0;
}
