import { MiB } from '../quantities/index.ts';
import { collectYoung } from './collect.ts';

/** Bytes of short-lived buffers after which they are collected. */
const COLLECT_AFTER = 8 * MiB;

let used = 0;

/**
 * Counts bytes of a new buffer that is soon garbage. For V8 a buffer of any size is a small object: by itself it collects them
 * when 64 MB wait. A collection of the young generation takes about 1 ms, and a busy kubelet causes one in several minutes.
 */
export function bufferUsed(bytes: number): void {
  used += bytes;
  if (used < COLLECT_AFTER) return;
  used = 0;
  collectYoung();
}
