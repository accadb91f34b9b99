import { expect, vi } from 'vitest';
import type { CgroupTree } from '../../src/cgroups/index.ts';
import { LONG_WAIT } from './long-wait.ts';

const TIME_MS = 30_000;

/**
 * Lets the deadline of a call pass as soon as the call lowers memory.high: it was admitted, and now has no time to
 * reclaim. Everything before that may take any time.
 */
export async function outOfTime(tree: CgroupTree, call: (deadline: number) => Promise<unknown>): Promise<unknown> {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] });
  const write = vi.spyOn(tree, 'write');
  try {
    let isOver = false;
    const ended = call(performance.now() + TIME_MS).finally(() => (isOver = true));
    const isReclaiming = (): boolean => write.mock.calls.some(([, { file }]) => file === 'memory.high');
    await expect.poll(() => isOver || isReclaiming(), LONG_WAIT).toBe(true);
    await vi.advanceTimersByTimeAsync(TIME_MS);
    return await ended;
  } finally {
    write.mockRestore();
    vi.useRealTimers();
  }
}
