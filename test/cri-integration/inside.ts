import { copyFile, mkdir, readdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { execa } from 'execa';
import { required, startContainerd } from '../conformance/containerd.ts';
import { startRegistry } from '../conformance/images/oci.ts';
import { backend } from '../conformance/inside.ts';
import type { Side } from '../conformance/nodes.ts';
import { startShim } from '../conformance/shim.ts';
import { withFailpoints } from './failpoints.ts';
import { imageList, pause, suiteImages, suiteName } from './programs.ts';
import { readGoTests } from './report.ts';
import { RestartingContainerd } from './restarting.ts';

/** The task of the part that runs inside the node. Passed as its only argument, in JSON. */
export interface InsideOrder {
  readonly side: Side;
  /** The tests: names, without those of subtests. Null: all. */
  readonly tests: readonly string[] | null;
  /** The program of the shim. */
  readonly shim: string;
  /** The programs of {@link obtainSuite}. */
  readonly programs: string;
}

export const logName = 'tests.log';
const TEST_LIMIT = '5m';
const say = (line: string): void => console.log(line);

/** The part of the command that runs in the test node. Leaves all test output in the node's output folder. */
export async function runInside(order: InsideOrder): Promise<void> {
  const outDir = required('NODE_OUT');
  const applets = required('NODE_APPLETS');
  const names = (await readdir(applets)).filter((name) => name !== 'busybox');
  const images = suiteImages(await readFile(join(applets, 'busybox')), names);
  const registry = await startRegistry(images);
  process.env['PATH'] = `${order.programs}:${required('PATH')}`;
  await mkdir('/run/suite', { recursive: true });
  await writeFile('/run/suite/images.toml', imageList(images));
  try {
    await startContainerd(registry.port, pause, await withFailpoints(order.programs));
    const containerd = new RestartingContainerd(say);
    if (order.side === 'direct') await runTests(order, backend, outDir);
    else await throughShim(order, outDir);
    await containerd.stop();
  } finally {
    await registry.close();
    await copyFile('/run/node/containerd.log', join(outDir, 'containerd.log')).catch(() => undefined);
  }
}

async function throughShim(order: InsideOrder, outDir: string): Promise<void> {
  const shim = await startShim({ program: order.shim, backend, log: join(outDir, 'shim.log') });
  await runTests(order, shim.endpoint, outDir);
  const end = await shim.stop();
  if (end !== 0) throw new Error(`the shim exited with ${end}, see shim.log`);
}

/** Runs each test in a separate process, because a test that panics or hangs must not end the others. */
async function runTests({ programs, tests }: InsideOrder, endpoint: string, outDir: string): Promise<void> {
  const suite = join(programs, suiteName);
  const chosen = tests ?? (await namesOf(suite));
  let output = '';
  for (const [index, name] of chosen.entries()) {
    const start = performance.now();
    const { all } = await execa(
      suite,
      [
        ...['-test.v', `-test.run=^${name}$`, `-test.timeout=${TEST_LIMIT}`],
        ...[`--cri-endpoint=${endpoint}`, '--containerd-bin=containerd', '--image-list=/run/suite/images.toml'],
      ],
      { reject: false, all: true, stdin: 'ignore', cwd: '/run/suite' },
    );
    output += `${all}\n`;
    await writeFile(join(outDir, logName), output);
    const outcome = readGoTests(all).get(name)?.outcome ?? 'not run';
    const seconds = ((performance.now() - start) / 1000).toFixed(1);
    if (outcome === 'failed') await removePods();
    say(`${index + 1} of ${chosen.length}: ${name}: ${outcome}, ${seconds} s`);
  }
}

/** Leftovers of a failed test would fail others, which count the pods. */
async function removePods(): Promise<void> {
  const { failed, all } = await execa('crictl', ['--runtime-endpoint', backend, 'rmp', '--all', '--force'], {
    reject: false,
    all: true,
  });
  if (failed) say(`cannot remove the pods that a test has left: ${all}`);
}

/** The names of all tests. The program connects to containerd before it lists them. */
async function namesOf(suite: string): Promise<readonly string[]> {
  const { stdout } = await execa(suite, ['-test.list=.', `--cri-endpoint=${backend}`], { cwd: '/run/suite' });
  return stdout.split('\n').filter((line) => line.startsWith('Test'));
}
