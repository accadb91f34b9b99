import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { markedHigh } from '../../../src/cgroups/memory-high.ts';
import { bytes } from '../../../src/core/quantities/numbers.ts';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { encodeRecord } from '../../../src/sandbox/journal/record.ts';

/** A value that the shim only writes temporarily. */
const LOWERED = markedHigh(bytes(40 * MiB));
const UID = '11111111-2222-4333-8444-555555555555';
const EARLIER = '11111111-2222-4333-8444-666666666666';

/** memory.high of each cgroup: before the shim was killed, after it was killed, and after it is restored. */
const highs = {
  'pod/held': { old: 'max', left: LOWERED, right: 'max' },
  'pod/held-below': { old: bytes(100 * MiB), left: LOWERED, right: 100 * MiB },
  'pod/reclaimed': { old: 'max', left: LOWERED, right: 'max' },
  'pod/set-by-another': { old: 'max', left: bytes(50 * MiB), right: 50 * MiB },
  'pod/lower-before': { old: bytes(20 * MiB), left: LOWERED, right: LOWERED },
  'pod/not-lowered': { old: 'max', left: 'max', right: 'max' },
  'pod/set-by-a-step': { old: 'max', left: bytes(LOWERED + MiB), right: LOWERED + MiB },
  'earlier/held': { old: 'max', left: LOWERED, right: LOWERED },
} as const;

/** Writes what a killed shim leaves: records in `state`, memory.high in `cgroup`. One record's cgroup is gone. */
export function leaveHighs(folder: string): void {
  mkdirSync(join(folder, 'state'), { mode: 0o700, recursive: true });
  for (const [cgroup, { left }] of Object.entries(highs)) {
    mkdirSync(join(folder, 'cgroup', cgroup), { recursive: true });
    writeFileSync(join(folder, 'cgroup', cgroup, 'memory.high'), `${left}\n`);
  }
  const of = (name: keyof typeof highs) => ({ cgroup: `/${name}`, memoryHigh: highs[name].old });
  const step = highs['pod/set-by-a-step'];
  const record = {
    sandboxId: 'a'.repeat(64),
    volumes: new Map(),
    transaction: {
      id: 't',
      startedAt: 1,
      steps: [
        {
          kind: 'container',
          id: 'b'.repeat(64),
          settings: { 'memory.high': { from: step.old, to: String(step.left) } },
        },
      ],
      undoing: false,
      highs: [of('pod/reclaimed'), of('pod/set-by-a-step'), { cgroup: '/gone', memoryHigh: 'max' }],
    },
    holds: [
      of('pod/held'),
      of('pod/held-below'),
      of('pod/set-by-another'),
      of('pod/lower-before'),
      of('pod/not-lowered'),
    ],
  } as const;
  const boot = readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim();
  writeFileSync(join(folder, 'state', `${UID}.json`), encodeRecord({ ...record, podUid: UID }, boot), { mode: 0o600 });
  const earlier = { sandboxId: record.sandboxId, volumes: new Map(), holds: [of('earlier/held')] };
  const text = encodeRecord({ ...earlier, podUid: EARLIER }, '00000000-0000-4000-8000-000000000000');
  writeFileSync(join(folder, 'state', `${EARLIER}.json`), text, { mode: 0o600 });
}

/** memory.high of each cgroup of {@link leaveHighs}, once all temporary values are restored. */
export const restoredHighs = Object.fromEntries(
  Object.entries(highs).map(([name, { right }]) => [name, String(right)]),
);

/** Returns memory.high of each cgroup of {@link leaveHighs} now. */
export const highsIn = (folder: string): Record<string, string> =>
  Object.fromEntries(
    Object.keys(highs).map((name) => [name, readFileSync(join(folder, 'cgroup', name, 'memory.high'), 'utf8').trim()]),
  );
