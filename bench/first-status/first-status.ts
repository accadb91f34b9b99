import { randomUUID } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { MiB } from '../../src/core/quantities/sizes.ts';
import { CriClient } from '../../test/support/cri/client.ts';
import { createContainer, runPod } from '../../test/support/cri/pod.ts';
import { ShimProcess } from '../../test/support/cri/shim.ts';
import { Connection } from '../client/connection.ts';
import { runtimeCall } from '../operations.ts';
import { bytes, integer } from '../protobuf.ts';

/**
 * Runs in the test node, like critest's benchmark of containers: creates containers one after the other, starts each
 * one, and measures its first verbose ContainerStatus, alternately directly and through the shim. Argument: the number
 * of containers of each side. Writes the times to the output folder of the node; see {@link FirstStatusTimes}.
 */

/** Milliseconds. */
export interface FirstStatusTimes {
  readonly direct: readonly number[];
  readonly shim: readonly number[];
}

export const FILE = 'first-status.json';
const LISTEN = '/run/bench/cri.sock';
const BACKEND = '/run/containerd/containerd.sock';

const resources = { memory_limit_in_bytes: 32 * MiB, cpu_quota: 10_000, cpu_period: 100_000, cpu_shares: 102 };
const container = { name: 'c', command: ['sleep', '1000000'], resources };

async function measure(count: number): Promise<FirstStatusTimes> {
  const shim = await ShimProcess.start({ listen: `unix://${LISTEN}`, args: ['--state-folder', '/run/bench/state'] });
  const sides = [
    { times: [] as number[], cri: new CriClient(`unix://${BACKEND}`), connection: await Connection.open(BACKEND) },
    { times: [] as number[], cri: new CriClient(`unix://${LISTEN}`), connection: await Connection.open(LISTEN) },
  ];
  for (let round = 0; round < count; round += 1) {
    for (const { times, cri, connection } of sides) {
      const pod = await runPod(cri, {
        name: `pod-${randomUUID().slice(0, 8)}`,
        containers: [],
        podMemory: 'max',
        podCpu: 'max 100000',
      });
      const from = { sandboxId: pod.sandboxId, uid: pod.uid, config: pod.config };
      const id = await createContainer(cri, from, container);
      await cri.call('StartContainer', { container_id: id });
      const begin = performance.now();
      await connection.call(runtimeCall('ContainerStatus', bytes(1, id), integer(2, 1)));
      times.push(performance.now() - begin);
      await pod.remove();
    }
  }
  for (const { cri, connection } of sides) {
    cri.close();
    connection.close();
  }
  await shim.stop();
  const [direct, through] = sides;
  return { direct: direct?.times ?? [], shim: through?.times ?? [] };
}

/** Called in the node only, because the bench imports the types of this file. */
export async function main(count: number, folder: string): Promise<void> {
  writeFileSync(join(folder, FILE), JSON.stringify(await measure(count)));
}
