/**
 * Checks the units with systemd-analyze, as a part of `npm run check`: they are valid, and their exposure is the one in
 * docs/units.md. With --write, the page gets the current open points. Their reasons have to be added by hand.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { execa } from 'execa';
import { cacheRoot, packageRoot } from '../../tools/download/places.ts';
import { obtainPackaged } from '../support/node/parts/packaged.ts';
import { analysisOf, compare, withPoints } from './exposure.ts';
import { systemdPrograms } from './systemd-programs.ts';

const page = join(packageRoot(), 'docs/units.md');
const units = join(packageRoot(), 'systemd');
const service = join(units, 'cri-resize-shim.service');

const say = (text: string): void => void process.stderr.write(`${text}\n`);
const [{ folder }] = await obtainPackaged(cacheRoot(), [systemdPrograms], say);
const analyze = join(folder, 'bin/systemd-analyze');

const security = ['security', '--offline=yes', '--no-pager'];
const [list, summary] = await Promise.all([
  execa(analyze, [...security, '--json=short', service]),
  execa(analyze, [...security, service]),
]);
const analysis = analysisOf(list.stdout, summary.stdout);
if (process.argv.includes('--write')) writeFileSync(page, withPoints(readFileSync(page, 'utf8'), analysis));
const faults = [...compare(readFileSync(page, 'utf8'), analysis), ...(await verified())];
for (const fault of faults) process.stderr.write(`units: ${fault}\n`);
process.exitCode = faults.length === 0 ? 0 : 1;

/** Returns the errors of systemd-analyze verify. The units start another program: theirs is not installed. */
async function verified(): Promise<readonly string[]> {
  const copies = await mkdtemp(join(tmpdir(), 'units-'));
  try {
    const names = await readdir(units);
    for (const name of names) {
      const text = await readFile(join(units, name), 'utf8');
      await writeFile(join(copies, name), text.replace(/^ExecStart=\S+/m, `ExecStart=${process.execPath}`));
    }
    // A template is verified with the sockets that name it.
    const own = names.filter((name) => !name.includes('@')).map((name) => join(copies, name));
    const verify = ['verify', '--man=no', '--generators=no', ...own];
    const { stderr, exitCode } = await execa(analyze, verify, { reject: false });
    const lines = stderr.split('\n').filter((line) => line.includes('cri-resize-shim'));
    return exitCode === 0 ? lines : [...lines, `systemd-analyze verify: exit code ${exitCode ?? 'none'}`];
  } finally {
    await rm(copies, { recursive: true });
  }
}
