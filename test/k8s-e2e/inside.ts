import { copyFile, readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { runGinkgo } from '../conformance/checks/critest.ts';
import { required, startContainerd } from '../conformance/containerd.ts';
import { startRegistry } from '../conformance/images/oci.ts';
import { backend } from '../conformance/inside.ts';
import type { Side } from '../conformance/nodes.ts';
import { startShim } from '../conformance/shim.ts';
import { ControlPlane } from './control-plane.ts';
import { e2eImages } from './programs.ts';

/** The task of the part that runs inside the node. Passed as its only argument, in JSON. */
export interface InsideOrder {
  readonly side: Side;
  /** Ginkgo's regular expression for full names of specs. */
  readonly focus: string;
  /** How many specs run at the same time. */
  readonly procs: number;
  /** The program of the shim. */
  readonly shim: string;
  /** The programs of {@link obtainE2e}. */
  readonly programs: string;
  readonly kubectl: string;
  /** Names of the images that the specs may use. */
  readonly images: readonly string[];
}

export const reportName = 'report.json';
/** Both sides run specs in the same order. */
const seed = 1;
const say = (line: string): void => console.log(line);

/** The part of the command that runs in the test node. Leaves its results in the output folder of the node. */
export async function runInside(order: InsideOrder): Promise<void> {
  const outDir = required('NODE_OUT');
  const applets = required('NODE_APPLETS');
  const registry = await startRegistry(
    e2eImages(order.images, {
      busybox: await readFile(join(applets, 'busybox')),
      applets: (await readdir(applets)).filter((name) => name !== 'busybox'),
      agnhost: await readFile(join(order.programs, 'agnhost')),
    }),
  );
  try {
    await startContainerd(registry.port);
    if (order.side === 'direct') await runSpecs(order, backend, outDir);
    else await throughShim(order, outDir);
  } finally {
    await registry.close();
    await copyFile('/run/node/containerd.log', join(outDir, 'containerd.log')).catch(() => undefined);
  }
}

async function throughShim(order: InsideOrder, outDir: string): Promise<void> {
  const shim = await startShim({ program: order.shim, backend, log: join(outDir, 'shim.log') });
  await runSpecs(order, shim.endpoint, outDir);
  const end = await shim.stop();
  if (end !== 0) throw new Error(`the shim exited with ${end}, see shim.log`);
}

async function runSpecs(order: InsideOrder, endpoint: string, outDir: string): Promise<void> {
  const { programs, focus, procs, kubectl } = order;
  const plane = await ControlPlane.start({ folder: '/run/cluster', programs, logs: outDir });
  try {
    await plane.startKubelet(endpoint);
    say('the node is ready for pods');
    await runGinkgo({
      what: 'e2e',
      file: join(programs, 'ginkgo'),
      args: [
        ...['-v', '--no-color', `--seed=${seed}`, `--procs=${procs}`, '--timeout=4h', `--focus=${focus}`],
        ...[`--json-report=${reportName}`, `--output-dir=${outDir}`, join(programs, 'e2e.test'), '--'],
        ...[`--kubeconfig=${plane.cluster.kubeconfig}`, `--kubectl-path=${kubectl}`, '--provider=local'],
        '--dump-logs-on-failure=false',
      ],
      log: join(outDir, 'e2e.log'),
      say,
    });
  } finally {
    await plane.stop();
  }
}
