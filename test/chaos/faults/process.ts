import { execFileSync } from 'node:child_process';
import type { Stage } from '../stage.ts';
import type { Fault } from './fault.ts';

const RESIZES = 6;
/** Standard input, output and error. */
const STANDARD = 3;
const HOUR_MS = 3_600_000;

/** The time of day jumps, and jumps back at the end, during resizes. */
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

/** Waits until the shim reports times that differ from the real ones by this much. */
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
      // Each new descriptor gets the lowest free number, and these are taken.
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
