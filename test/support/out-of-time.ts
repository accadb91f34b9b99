import { vi } from 'vitest';
import type { CgroupTree } from '../../src/cgroups/tree.ts';
import { eventually } from './fake-clock.ts';

const TIME_MS = 30_000;

/**
 * Makes the deadline of a call pass as soon as the call lowers memory.high: the call was admitted, but has no time to
 * reclaim. Earlier work may take any time.
 */
export async function outOfTime(tree: CgroupTree, call: (deadline: number) => Promise<unknown>): Promise<unknown> {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] });
  const write = vi.spyOn(tree, 'write');
  try {
    let isOver = false;
    const ended = call(performance.now() + TIME_MS).finally(() => (isOver = true));
    const isReclaiming = (): boolean => write.mock.calls.some(([, { file }]) => file === 'memory.high');
    // Unlike expect.poll, this does not advance the fake time.
    await eventually(() => isOver || isReclaiming());
    await vi.advanceTimersByTimeAsync(TIME_MS);
    return await ended;
  } finally {
    write.mockRestore();
    vi.useRealTimers();
  }
}
