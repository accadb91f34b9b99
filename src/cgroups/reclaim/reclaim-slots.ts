import { Slots } from '../../core/concurrency/index.ts';

/**
 * Limits writes that reclaim before they return, in the whole process. Each occupies one of the four threads of libuv's pool, which
 * cannot cancel a write. Two at most keep the other two threads free for all other files. With only one, a cgroup whose pages are
 * slow to reclaim (NFS) would block all others. A separate thread or process would cost megabytes and could not cancel a write
 * either; instead each write is short (see nextChunk). On the test node, reclaiming 64 MiB of page cache takes 7 ms and delays
 * the event loop by 3 to 5 ms.
 */
export const reclaiming = new Slots(2);

/** Minimum bytes to reclaim: the largest page size of any architecture, since the kernel ignores less than a page. */
export const LEAST_AMOUNT = 64 * 1024;
