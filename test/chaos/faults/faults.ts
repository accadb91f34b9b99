import { execFileSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { setTimeout as pause } from 'node:timers/promises';
import type { Random } from '../random.ts';
import type { Stage } from '../stage.ts';

/** A fault of the node that begins and ends while clients make calls. */
export interface Fault {
  readonly name: string;
  /**
   * The calls that may fail during the fault: `resizes`, because the shim cannot apply them; `all`, because containerd
   * is down or no connection can be opened.
   */
  readonly fails: 'nothing' | 'resizes' | 'all';
  /**
   * Whether kubelet's updates are forwarded unchanged during the fault, because the shim cannot read the pod (fail
   * open). kubelet then sets their order, so the clients only lower limits of a container, which needs no order.
   */
  readonly failsOpen?: true;
  /** The sign of the fault: text in an error of at least one call; or `run`, which rejects if there was no fault. */
  readonly shows: RegExp | 'run';
  /** Called before the clients start. */
  readonly prepare?: (stage: Stage) => Promise<void>;
  /** Causes the fault, waits for calls during it, and ends it. Rejects if there was no fault, see `shows`. */
  readonly run: (stage: Stage, random: Random) => Promise<void>;
}

const RESIZES = 6;
/** Standard input, output and error. */
const STANDARD = 3;
const HOUR_MS = 3_600_000;

/** The time of day jumps during resizes, and jumps back at the end. */
const clockJump = (name: string, clockMs: number): Fault => ({
  name,
  fails: 'nothing',
  shows: 'run',
  async run(stage) {
    const { load } = stage;
    stage.inject({ clockMs });
    await hasTime(stage, clockMs);
    await load.more(RESIZES, 'resize');
    stage.inject({});
    await hasTime(stage, 0);
    await load.more(RESIZES, 'resize');
  },
});

const SEEN_MS = 20_000;

/** Waits until the shim reports times that differ from the actual time by this much. */
async function hasTime({ shim, pods }: Stage, clockMs: number): Promise<void> {
  const request = {
    pod: { sandbox_id: pods[0]?.sandboxId },
    containers: { a: { limits: { cpu: '100m' } } },
    dry_run: true,
  };
  for (const limit = performance.now() + SEEN_MS; ; ) {
    const before = Date.now();
    const { resize } = await shim.api.call('ResizePod', request);
    const difference = Number(resize?.['created']?.['seconds']) * 1000 - before;
    if (Math.abs(difference - clockMs) < HOUR_MS / 2) return;
    if (performance.now() > limit) throw new Error(`the clock differs by ${difference} ms: the fault has not occurred`);
  }
}

export const processFaults: readonly Fault[] = [
  {
    name: 'EMFILE: no descriptor is left',
    fails: 'all',
    shows: /EMFILE/,
    async run({ shim, load }) {
      const limit = (count: string): void =>
        void execFileSync('prlimit', ['--pid', String(shim.pid), `--nofile=${count}:`]);
      const before = /\d+/.exec(
        execFileSync('prlimit', ['--pid', String(shim.pid), '--nofile', '--output=SOFT', '--noheadings'], {
          encoding: 'utf8',
        }),
      );
      // A new descriptor gets the lowest free number. The lower numbers are in use.
      limit(String(STANDARD));
      try {
        await load.more(RESIZES, 'resize');
      } finally {
        limit(before?.[0] ?? '1024');
      }
    },
  },
  {
    name: 'ENOMEM on reads of cgroups, /proc and the journal',
    fails: 'resizes',
    failsOpen: true,
    shows: /ENOMEM: injected/,
    async run(stage, random) {
      const { disk, load } = stage;
      const path = `^(/sys/fs/cgroup|/proc|${disk.state})`;
      const calls = ['open', 'read', 'readFile', 'readdir', 'stat', 'statfs'];
      stage.inject({ rules: [{ calls, path, code: 'ENOMEM', every: random.integer(2, 9) }] });
      await load.more(RESIZES, 'resize');
      stage.inject({});
    },
  },
  clockJump('the clock jumps an hour ahead and back', HOUR_MS),
  clockJump('the clock jumps an hour back and ahead', -HOUR_MS),
];

/** The journal waits 5 s for a disk. Some rounds are shorter than that, and some are longer. */
const HANGS_MS = [500, 2000, 6500] as const;

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
