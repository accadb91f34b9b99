import { copyFile, readdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { CheckList, crictl, ctr } from './checks/checks.ts';
import { CrictlChecks } from './checks/crictl-checks.ts';
import { runBenchmarks, runCritest } from './checks/critest.ts';
import { checkCtr } from './checks/ctr-checks.ts';
import { required, startContainerd } from './containerd.ts';
import { critestImages } from './images/images.ts';
import type { Registry } from './images/oci.ts';
import { startRegistry } from './images/oci.ts';
import type { Side } from './nodes.ts';
import { startShim } from './shim.ts';

/** The task of the part that runs inside the node. Passed as its only argument, in JSON. */
export interface InsideOrder {
  readonly side: Side;
  readonly focus: string | null;
  /** Whether to run critest's benchmarks too. */
  readonly benchmarks: boolean;
  /** Whether to check crictl and ctr too (through the shim only). */
  readonly clients: boolean;
  /** The program of the shim. */
  readonly shim: string;
}

export const checksName = 'checks.json';
export const backend = 'unix:///run/containerd/containerd.sock';
const say = (line: string): void => console.log(line);

/** The part of the command that runs in the test node. Leaves its results in the output folder of the node. */
export async function runInside(order: InsideOrder): Promise<void> {
  const outDir = required('NODE_OUT');
  const applets = required('NODE_APPLETS');
  const busybox = await readFile(join(applets, 'busybox'));
  const names = (await readdir(applets)).filter((name) => name !== 'busybox');
  const registry = await startRegistry(critestImages(busybox, names));
  try {
    await startContainerd(registry.port);
    if (order.side === 'direct') await runSpecs(order, backend, outDir);
    else await throughShim(order, outDir, registry, busybox);
  } finally {
    await registry.close();
    await copyFile('/run/node/containerd.log', join(outDir, 'containerd.log')).catch(() => undefined);
  }
}

async function runSpecs({ focus, benchmarks }: InsideOrder, endpoint: string, outDir: string): Promise<void> {
  await runCritest({ endpoint, focus: focus ?? undefined, outDir, say });
  if (benchmarks) await runBenchmarks({ endpoint, outDir, say });
}

async function throughShim(order: InsideOrder, outDir: string, registry: Registry, busybox: Buffer): Promise<void> {
  const list = new CheckList(say);
  const shim = await startShim({ program: order.shim, backend, log: join(outDir, 'shim.log') });
  if (order.clients) await checkClients(list, shim.endpoint, registry, busybox);
  await runSpecs(order, shim.endpoint, outDir);
  await list.check('SIGTERM stops the shim', async () => {
    const end = await shim.stop();
    if (end !== 0) throw new Error(`it exited with ${end}, see shim.log`);
  });
  await writeFile(join(outDir, checksName), JSON.stringify(list.results));
}

async function checkClients(list: CheckList, endpoint: string, registry: Registry, busybox: Buffer): Promise<void> {
  const start = performance.now();
  const containerdVersion = required('CONTAINERD_VERSION');
  const pod = new CrictlChecks(list, crictl(endpoint), crictl(backend), containerdVersion);
  await pod.start();
  await checkCtr({
    list,
    through: ctr(endpoint),
    direct: ctr(backend),
    containerdVersion,
    runningContainer: () => pod.runningContainer,
    busybox,
    registryPort: registry.port,
  });
  await pod.finish();
  const failed = list.results.filter(({ failure }) => failure !== null).length;
  const seconds = ((performance.now() - start) / 1000).toFixed(0);
  say(`crictl and ctr: ${list.results.length} checks, ${failed} failed, in ${seconds} s`);
}
