import type { ServiceError } from '@grpc/grpc-js';
import { status } from '@grpc/grpc-js';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { CriClient } from '../../support/cri/client.ts';
import type { BadInputNode } from './bad-input/case.ts';
import { limits, makeContainer, removePods, startNode } from './bad-input/case.ts';

/**
 * Does not run on containerd 2.3 and later, which may crash: internal/cri/nri/nri_api_linux.go, GetRlimits, reads the
 * process of a container that is gone from the metadata.
 */

let node: BadInputNode;
beforeAll(async () => {
  node = await startNode();
});
afterAll(async () => {
  await removePods(node);
  expect(await node.stop()).toBe(0);
});

const codeOf = (client: CriClient, container: string): Promise<number> =>
  client.call('UpdateContainerResources', { container_id: container, linux: limits(16) }).then(
    () => status.OK,
    (error: unknown) => (error as ServiceError).code,
  );

test('an update of a container that is being removed is answered by the runtime, and its pod does not change', async () => {
  const before = await node.snapshot();
  for (let round = 0; round < 5; round += 1) {
    const id = await makeContainer(node.cri, node.pod.sandboxId, `gone${round}`);
    const [code] = await Promise.all([codeOf(node.cri, id), node.cri.call('RemoveContainer', { container_id: id })]);
    // The container still existed, was being removed, or was gone.
    expect([status.OK, status.UNKNOWN, status.NOT_FOUND]).toContain(code);
  }
  expect(await node.snapshot()).toEqual(before);
});
