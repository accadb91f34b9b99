import { execFileSync } from 'node:child_process';
import { descriptorsOf } from '../invariants.ts';
import type { Fault } from './fault.ts';

const RESIZES = 6;
const HOUR_MS = 3_600_000;

/** The time of day jumps, and jumps back at the end. Running resizes may find their deadlines passed: they are rolled back. */
const clockJump = (name: string, clockMs: number): Fault => ({
  name,
  fails: 'resizes',
  async run(stage) {
    const { load } = stage;
    stage.inject({ clockMs });
    await load.more(RESIZES, 'resize');
    stage.inject({});
    await load.more(RESIZES, 'resize');
  },
});

export const processFaults: readonly Fault[] = [
  {
    name: 'EMFILE: no descriptor is left',
    fails: 'all',
    async run({ shim, load }) {
      const limit = (count: string): void =>
        void execFileSync('prlimit', ['--pid', String(shim.pid), `--nofile=${count}:`]);
      const before = /\d+/.exec(
        execFileSync('prlimit', ['--pid', String(shim.pid), '--nofile', '--output=SOFT', '--noheadings'], {
          encoding: 'utf8',
        }),
      );
      limit(String(descriptorsOf(shim.pid)));
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
