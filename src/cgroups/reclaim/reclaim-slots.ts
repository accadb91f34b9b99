import { Slots } from '../../core/concurrency/index.ts';

/**
 * Writes that make the kernel reclaim before they return, in the whole process. Each holds a thread of libuv's pool, which has four
 * for every file of the process and cannot be told to give up a write: so two at most, and the other two stay free,
 * whatever the kernel does. With one, a single cgroup whose pages are slow to come free (NFS) would stop all others. A thread or a process of
 * its own would cost megabytes, and not end a stuck write either: each write is kept short instead (see nextChunk). On
 * the test node 64 MiB of page cache take 7 ms, and the event loop is late by 3 to 5 ms meanwhile.
 */
export const reclaiming = new Slots(2);

/** The largest page there is: less than a page is nothing to the kernel, and no progress. In bytes. */
export const LEAST_AMOUNT = 64 * 1024;
