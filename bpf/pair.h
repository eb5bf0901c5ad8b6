/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/*
 * Windows below two packets: a pair of packets, and a pause after it (Nice 2.3).
 *
 * The kernel calls min_tso_segs before each attempt to send. When it sends a packet, it computes
 * the pause after it from the pacing rate. A window of two never sends both packets as one buffer
 * (tcp_cwnd_test halves it). So the first is sent at a rate for the pause within the pair, and the
 * second at the rate for the pause after it. The includer has socket.h.
 */
#ifndef LULL_PAIR_H
#define LULL_PAIR_H

/* Bytes per second between the two packets of a pair: 15 us. */
#define PAIR_RATE 100000000

#define MICROS 1000000ULL

/* The pacing rate that gives a packet a pause of this many microseconds; 0 would mean unpaced. */
static SOCKET_INLINE u64 pace_of(u32 bytes, u64 pause_us)
{
	u64 pace = bytes * MICROS / (pause_us ? pause_us : 1);

	return pace ? pace : 1;
}

/*
 * Paces the next packet: the first or the second of a pair at `rate`, in bytes per second, whose
 * two packets are sent `spacing` microseconds apart. `began` is the count of segments sent at the
 * beginning of the pair.
 */
static SOCKET_INLINE void pace_pair(struct sock *sk, u32 *began, u64 rate, u64 spacing)
{
	struct tcp_sock *tp = tcp_of(sk);
	u64 pause;

	sk->sk_pacing_status = PACING_NEEDED;
	if (packets_in_flight(tp) || tp->data_segs_out == *began + 1) {
		/* The second one, or the first had been sent alone because there was no more data. */
		pause = 2ULL * tp->mss_cache * MICROS / rate;
		pause = pause > 2 * spacing ? pause - spacing : pause / 2;
		set_pace(sk, pace_of(tp->mss_cache, pause));
	} else {
		*began = tp->data_segs_out;
		set_pace(sk, spacing ? pace_of(tp->mss_cache, spacing) : PAIR_RATE);
	}
}

#endif
