import { readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { PassThrough } from 'node:stream';
import { text } from 'node:stream/consumers';
import { runInNode } from '../../test/support/node/index.ts';
import { builtFile } from '../built-file.ts';
import { FILE, type FirstStatusTimes } from '../first-status/first-status.ts';
import type { WorkOptions } from './options.ts';
import { resultOf, type WorkResult } from './result.ts';

/** Containers of each side. */
const CONTAINERS = 15;
const LIMIT_MS = 10 * 60_000;

/** Measures the first ContainerStatus of new containers, in the test node: a real containerd has to run them. */
export async function measureFirstStatus({ progress }: WorkOptions): Promise<WorkResult[]> {
  const output = new PassThrough();
  const printed = text(output);
  const { exitCode, outDir } = await runInNode({
    containerd: '2.1',
    runtime: 'runc',
    command: [process.execPath, builtFile('tools/bench-first-status.js'), String(CONTAINERS)],
    stdio: { stdout: output, stderr: output },
    timeoutMs: LIMIT_MS,
    progress,
  });
  output.end();
  if (exitCode !== 0) throw new Error(`the run in the node ended with ${exitCode}; see ${outDir}:\n${await printed}`);
  const times = JSON.parse(await readFile(join(outDir, FILE), 'utf8')) as FirstStatusTimes;
  await rm(outDir, { recursive: true, force: true });
  return [
    resultOf('First ContainerStatus of a container', 'ms', times.shim),
    resultOf('  directly', 'ms', times.direct),
  ];
}
