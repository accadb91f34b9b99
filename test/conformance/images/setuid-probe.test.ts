import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { execa } from 'execa';
import { expect, test } from 'vitest';
import { setuidProbe } from './setuid-probe.ts';

test.runIf(process.platform === 'linux' && process.arch === 'x64')('the probe prints its effective user', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'setuid-probe-'));
  try {
    const file = join(folder, 'probe');
    await writeFile(file, setuidProbe(), { mode: 0o755 });
    const { stdout } = await execa(file);
    expect(stdout).toBe(`Effective uid: ${process.geteuid?.() === 0 ? 0 : 1000}`);
  } finally {
    await rm(folder, { recursive: true });
  }
});
