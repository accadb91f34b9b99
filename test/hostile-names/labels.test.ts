import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { decode, encode } from '../../src/runtime/codec.ts';
import { declarePod } from '../../src/sandbox/pods/declare-pod.ts';
import { noPodSpecs } from '../../src/sandbox/pods/pod-spec.ts';
import { FakeRuntime, SANDBOX } from '../support/fake-runtime.ts';
import { hostileNames } from '../support/kubernetes/hostile-names.ts';

const RUNNING = 1;
let runtime: FakeRuntime;
beforeEach(async () => {
  runtime = await FakeRuntime.start();
});
afterEach(() => runtime.close());

describe('H2: the labels of a container', () => {
  test.each(hostileNames.filter(([, name]) => !name.includes('\uD800')))(
    'labels with %s neither name a container nor move it to another pod',
    async (_, name) => {
      const labels = Object.fromEntries([
        ['io.kubernetes.container.name', name],
        ['io.kubernetes.pod.uid', 'uid-victim'],
        ['io.kubernetes.pod.name', name],
        ['io.kubernetes.pod.namespace', 'victim'],
        [name, name],
      ]);
      const asked: unknown[] = [];
      runtime.on('ListContainers', (request) => {
        asked.push(decode('ListContainersRequest', request).filter?.pod_sandbox_id);
        return encode('ListContainersResponse', {
          containers: [{ id: 'web-0', pod_sandbox_id: SANDBOX, metadata: { name: 'web' }, state: RUNNING, labels }],
        });
      });
      const { registry, kubelet } = runtime.node;
      const pod = await registry.pod(SANDBOX);
      const declared = await declarePod({ registry, kubelet, specs: noPodSpecs }, pod!);
      expect(asked).toEqual([SANDBOX]);
      expect(declared.containers.map(({ name: found }) => found)).toEqual(['web']);
      expect(pod?.metadata).toMatchObject({ uid: 'uid-1' });
    },
  );
});
