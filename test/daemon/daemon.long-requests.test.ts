import { status } from '@grpc/grpc-js';
import { expect, test } from 'vitest';
import { MiB } from '../../src/core/quantities/sizes.ts';
import { TestDaemon } from '../support/daemon/test-daemon.ts';

const daemon = new TestDaemon();

/** Returns an UpdateContainerResourcesRequest of this many bytes: an id and an unknown field. */
function updateOf(size: number): string {
  const id = Buffer.from([0x0a, 1, 0x78]);
  const rest = size - id.length - 6;
  const unknown = Buffer.alloc(6 + rest, 'a');
  unknown.set([0x82, 1, 0x80 | (rest & 0x7f), 0x80 | ((rest >> 7) & 0x7f), 0x80 | ((rest >> 14) & 0x7f), rest >> 21]);
  return Buffer.concat([id, unknown]).toString('latin1');
}

test.each([
  ['16 MiB, which containerd accepts too, reaches its handler, which rejects it', 16 * MiB, status.INVALID_ARGUMENT],
  ['more ends before', 16 * MiB + 1, status.RESOURCE_EXHAUSTED],
])('updates of up to 16 MiB reach their handler: an update of %s', async (_, size, code) => {
  await daemon.startBackend();
  const program = daemon.start();
  await program.logged('serving');
  expect(await daemon.connect().code('/runtime.v1.RuntimeService/UpdateContainerResources', updateOf(size))).toBe(code);
});
