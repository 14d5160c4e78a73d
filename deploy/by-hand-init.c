/*
 * A guest's whole user space: times pipe writes and reads of 64 bytes and reboots, which ends qemu. It does what the
 * quickstart's workload asks of the agent: a warm-up and three runs of 2000.
 */
#include <fcntl.h>
#include <stdio.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

static double now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

int main(void)
{
	const int loops = 2000;
	char bytes[64] = { 0 };
	int ends[2];

	mknod("/console", S_IFCHR | 0600, makedev(5, 1));
	if (open("/console", O_RDWR) != 0 || dup(0) != 1 || pipe(ends))
		return 1;
	for (int run = 0; run < 4; run++) {
		double began = now_us();

		for (int i = 0; i < loops; i++)
			if (write(ends[1], bytes, sizeof(bytes)) < 0 || read(ends[0], bytes, sizeof(bytes)) < 0)
				return 1;
		if (run)
			printf("pipe_us %.6f\n", (now_us() - began) / loops);
	}
	fflush(stdout);
	reboot(RB_AUTOBOOT);
	return 1;
}
