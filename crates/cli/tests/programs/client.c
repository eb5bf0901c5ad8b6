/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/* Connects to itself and prints the congestion control it got; linked statically by the test. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

int main(void)
{
	struct sockaddr_in address = { .sin_family = AF_INET };
	socklen_t length = sizeof(address);
	char name[32] = "";
	int tos = -1;
	int listener = socket(AF_INET, SOCK_STREAM, 0);
	int client = socket(AF_INET, SOCK_STREAM, 0);

	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (bind(listener, (void *)&address, length) || listen(listener, 1) ||
	    getsockname(listener, (void *)&address, &length) ||
	    connect(client, (void *)&address, length))
		return 1;
	length = sizeof(name);
	getsockopt(client, IPPROTO_TCP, TCP_CONGESTION, name, &length);
	length = sizeof(tos);
	getsockopt(client, IPPROTO_IP, IP_TOS, &tos, &length);
	printf("%s %d\n", name, tos & 0xfc);
	return 0;
}
