import { mkdirSync } from 'node:fs';
import { text } from 'node:stream/consumers';
import { builtFile } from '../built-file.ts';
import type { RemountTimes } from '../remount/main.ts';
import { rounded } from '../statistics.ts';
import type { WorkOptions } from './options.ts';
import { resultOf, type WorkResult } from './result.ts';

/**
 * Measures a volume's new size on this machine's kernel: from the request until statfs reports the new size, including
 * the survey of the mount table before. Runs as root, in a separate mount namespace.
 */
export async function measureRemounts({ children, seconds }: WorkOptions): Promise<WorkResult[]> {
  const kubelet = children.path('kubelet-remounted');
  mkdirSync(kubelet);
  const program = [process.execPath, builtFile('tools/bench-remount.js'), kubelet, String(seconds)];
  const child = children.spawn('remounter', 'unshare', ['--mount', '--propagation', 'private', ...program]);
  const { stdout } = child.process;
  if (stdout === null) throw new Error('the remounter has no stdout');
  const printed = await text(stdout);
  await child.exited;
  if (printed === '') throw new Error(`no volume could be remounted, which needs root:\n${child.lastOutput()}`);
  const { growing, shrinking, byCommand, cpuUs } = JSON.parse(printed) as RemountTimes;
  const ms = (times: readonly number[]): number[] => times.map((time) => time / 1000);
  return [
    resultOf('Remount of a volume', 'ms', ms([...growing, ...shrinking])),
    resultOf('  growing', 'ms', ms(growing)),
    resultOf('  shrinking', 'ms', ms(shrinking)),
    { work: '  CPU time, mean', unit: 'ms', p50: rounded(cpuUs / 1000, 3), samples: growing.length + shrinking.length },
    resultOf('  by mount(8)', 'ms', ms(byCommand)),
  ];
}
