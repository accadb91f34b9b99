import { mkdirSync } from 'node:fs';
import { text } from 'node:stream/consumers';
import { builtFile } from '../built-file.ts';
import type { RemountTimes } from '../remount/main.ts';
import { rounded } from '../statistics.ts';
import { type WorkResult, resultOf } from './result.ts';
import type { WorkOptions } from './options.ts';

/**
 * A volume's new size, on this machine's own kernel: from the question to the size that statfs says afterwards, with the look at
 * the table of mounts that comes before it. As root, in a mount namespace that nothing else sees.
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
  if (printed === '') throw new Error(`no volume could be remounted; it takes root:\n${child.lastWords()}`);
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
