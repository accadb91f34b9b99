import { readFileSync, readdirSync } from 'node:fs';
import { setTimeout as pause } from 'node:timers/promises';
import type { Fault } from './fault.ts';

/** The journal waits 5 s for a disk: some rounds are shorter, and some longer. */
const HANGS_MS = [500, 2000, 6500] as const;
const RESIZES = 6;

const BLOCKED_MS = 20_000;
const POLL_MS = 10;

/** Waits until a thread of the process waits for the disk (state D of proc_pid_stat(5)). */
async function hasBlockedThread(pid: number): Promise<void> {
  const folder = `/proc/${pid}/task`;
  const isBlocked = (thread: string): boolean => / D \d+ /.test(readFileSync(`${folder}/${thread}/stat`, 'utf8'));
  for (const limit = performance.now() + BLOCKED_MS; !readdirSync(folder).some(isBlocked); ) {
    if (performance.now() > limit)
      throw new Error('no thread of the shim waits for the disk: the fault has not occurred');
    await pause(POLL_MS);
  }
}

export const diskFaults: readonly Fault[] = [
  {
    name: 'the disk of the state folder is full',
    fails: 'resizes',
    shows: /ENOSPC/,
    async run({ disk, load }) {
      disk.fill();
      try {
        await load.more(RESIZES, 'resize');
      } finally {
        disk.empty();
      }
    },
  },
  {
    name: 'the state folder is read-only',
    fails: 'resizes',
    shows: /EROFS/,
    async run({ disk, load }) {
      disk.readOnly();
      try {
        await load.more(RESIZES, 'resize');
      } finally {
        disk.writable();
      }
    },
  },
  {
    name: 'the disk of the state folder hangs',
    fails: 'resizes',
    shows: 'run',
    async run({ disk, load, shim }, random) {
      const hang = random.pick(HANGS_MS);
      disk.freeze();
      try {
        await hasBlockedThread(shim.pid);
        await Promise.all([pause(hang), load.more(RESIZES, 'passed')]);
      } finally {
        disk.thaw();
      }
    },
  },
  {
    name: 'EIO on writes, syncs and renames of the journal',
    fails: 'resizes',
    shows: /EIO: injected/,
    async run(stage, random) {
      const { disk, load } = stage;
      const calls = random.pick([['write'], ['sync'], ['rename'], ['write', 'sync', 'rename', 'unlink']]);
      stage.inject({ rules: [{ calls, path: `^${disk.state}`, code: 'EIO', every: random.integer(1, 3) }] });
      await load.more(RESIZES, 'resize');
      stage.inject({});
    },
  },
  {
    name: 'EIO on records that a new shim reads',
    fails: 'all',
    shows: /is read-only: .* cannot be read: EIO/,
    async run(stage) {
      const { disk, load, shim } = stage;
      await load.more(2, 'resize');
      await shim.stop();
      stage.inject({ rules: [{ calls: ['readFile'], path: `^${disk.state}/.*json$`, code: 'EIO', every: 1 }] });
      if (!(await shim.start())) throw new Error('the shim ended at its start');
      await load.more(RESIZES, 'resize');
      stage.inject({});
    },
  },
];
