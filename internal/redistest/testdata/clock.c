/* Sets the wall clock of a process off by the microseconds that the file named in REDISTEST_CLOCK holds, as
   one integer of the machine, which may change while the process runs. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *offset;

static int64_t off(void) {
	if (!offset) {
		const char *path = getenv("REDISTEST_CLOCK");
		int fd = path ? open(path, O_RDONLY) : -1;
		void *map = fd < 0 ? MAP_FAILED : mmap(0, sizeof *offset, PROT_READ, MAP_SHARED, fd, 0);
		if (fd >= 0) close(fd);
		if (map == MAP_FAILED) abort();
		offset = map;
	}
	return *offset;
}

int clock_gettime(clockid_t clock, struct timespec *t) {
	int failed = syscall(SYS_clock_gettime, clock, t);
	if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
		int64_t ns = t->tv_sec * 1000000000LL + t->tv_nsec + off() * 1000;
		t->tv_sec = ns / 1000000000;
		t->tv_nsec = ns % 1000000000;
	}
	return failed;
}

int gettimeofday(struct timeval *t, void *zone) {
	struct timespec now;
	(void)zone;
	if (clock_gettime(CLOCK_REALTIME, &now)) return -1;
	t->tv_sec = now.tv_sec;
	t->tv_usec = now.tv_nsec / 1000;
	return 0;
}

time_t time(time_t *t) {
	struct timespec now;
	if (clock_gettime(CLOCK_REALTIME, &now)) return -1;
	if (t) *t = now.tv_sec;
	return now.tv_sec;
}
