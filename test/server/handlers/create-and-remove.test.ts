import { afterEach, beforeEach, expect, test } from 'vitest';
import { encode } from '../../../src/runtime/codec.ts';
import { createInterceptors } from '../../../src/server/handlers/table.ts';
import { containerId, FakeRuntime, podConfig, SANDBOX } from '../../support/fake-runtime.ts';

let runtime: FakeRuntime;
beforeEach(async () => (runtime = await FakeRuntime.start()));
afterEach(() => runtime.close());

test('StartContainer notifies the watchers of container starts, and its response is unchanged', async () => {
  const { node, decreaseReclaimer } = runtime;
  node.registry.learnContainer({ containerId: containerId(0), sandboxId: SANDBOX, name: 'web' });
  const started: string[] = [];
  node.registry.watch({ containerStarted: ({ sandboxId, name }) => void started.push(`${sandboxId}/${name}`) });
  const { amendments } = createInterceptors(node, decreaseReclaimer, { name: 'shim', version: '1' } as never);
  const { amendment } = amendments.get('/runtime.v1.RuntimeService/StartContainer')!;
  for (const id of [containerId(0), containerId(7)]) {
    const request = encode('StartContainerRequest', { container_id: id });
    expect(await amendment({ request, response: Buffer.alloc(0) } as never, { fields: {} } as never)).toBeUndefined();
  }
  expect(started).toEqual([`${SANDBOX}/web`]);
});

test('a container counts as starting from the StartContainer request until the end of the call', () => {
  const { node, decreaseReclaimer } = runtime;
  const { registry } = node;
  const ID = containerId(0);
  registry.learnContainer({ containerId: ID, sandboxId: SANDBOX, name: 'web' });
  const { delays } = createInterceptors(node, decreaseReclaimer, { name: 'shim', version: '1' } as never);
  const path = '/runtime.v1.RuntimeService/StartContainer';
  const begin = (request: Uint8Array): (() => void) => {
    let end = (): void => expect.fail('its end is not asked for');
    const call = { path, request, timeoutMs: Infinity, onEnd: (action: () => void) => void (end = action) };
    expect(delays.get(path)!(call)).toBeUndefined();
    return end;
  };
  const start = (id: string) => begin(encode('StartContainerRequest', { container_id: id }));
  expect(registry.isStarting(ID)).toBe(false);
  // The second id is a prefix, which the runtime accepts.
  const ends = [start(ID), start(ID.slice(0, 12))];
  expect(registry.isStarting(ID)).toBe(true);
  ends[0]!();
  expect(registry.isStarting(ID)).toBe(true);
  ends[1]!();
  expect(registry.isStarting(ID)).toBe(false);
  // Unknown ids and ids that cannot be decoded do not count.
  start(containerId(7))();
  expect(registry.isStarting(containerId(7))).toBe(false);
  const call = { path, request: Buffer.from([255]), timeoutMs: Infinity, onEnd: () => expect.fail('not a start') };
  expect(delays.get(path)!(call)).toBeUndefined();
});

test('RestorePod makes the pod known, including the volume policies of its annotations', async () => {
  const { node, decreaseReclaimer } = runtime;
  runtime.makePod('1000000000', [500_000_000]);
  runtime.describePod({ config: { ...podConfig, annotations: { 'volume.cri-resize-shim.io/cache': '50%' } } });
  const { amendments } = createInterceptors(node, decreaseReclaimer, { name: 'shim', version: '1' } as never);
  const { amendment } = amendments.get('/runtime.v1.RuntimeService/RestorePod')!;
  const response = encode('RestorePodResponse', { pod_sandbox_id: SANDBOX });
  expect(await amendment({ request: Buffer.alloc(0), response } as never, { fields: {} } as never)).toBeUndefined();
  expect(node.registry.knownPod(SANDBOX)).toBeDefined();
  expect(node.policies.policy(SANDBOX, 'cache')).toMatchObject({ hundredths: 5000 });
});
