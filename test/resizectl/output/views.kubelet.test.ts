import { expect, test } from 'vitest';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { podDescription, podsTable } from '../../../src/resizectl/output/views.ts';
import type { Messages } from '../../../src/server/api/messages.ts';

const values = (memory: number): Messages['Values'] => ({
  limits: { cpu: '', memory: String(memory * MiB) },
  requests: { cpu: '', memory: '' },
  cpu_max: '',
  memory_max: String(memory * MiB),
  cpu_shares: 0,
  cpu_weight: 0,
  memory_used_bytes: 0,
});

const pod: Messages['Pod'] = {
  identity: { sandbox_id: 'a'.repeat(64), uid: 'uid-web', namespace: 'shop', name: 'web' },
  values: { pod: values(192), containers: [{ id: 'c'.repeat(64), name: 'a', values: values(192) }], volumes: [] },
};

test('describe shows the pending resize of kubelet, and why the decrease is deferred', () => {
  const text = podDescription({
    ...pod,
    kubelet: {
      values: { pod: values(64), containers: [{ id: 'c'.repeat(64), name: 'a', values: values(64) }], volumes: [] },
      state: 'DEFERRED',
      reason: 'MEMORY_NOT_RECLAIMABLE',
      message: 'container a of pod shop/web: 104857600 bytes are in use',
      reclaimed_bytes: 0,
    },
  });
  expect(text).toMatch(/^Decrease: +Deferred: MEMORY_NOT_RECLAIMABLE: container a of pod shop\/web: 100Mi are in use/m);
  expect(text).toMatch(/Pending kubelet resize:\n {2}pod memory +64Mi\n {2}container a memory +64Mi/);
  expect(text.indexOf('Current values in the kernel')).toBeLessThan(text.indexOf('Pending kubelet resize'));
});

test('describe shows no pending resize if kubelet has none', () => {
  expect(podDescription(pod)).not.toMatch(/kubelet|Decrease/);
});

test('the table of pods shows a deferred decrease until kubelet has applied it', () => {
  const last = { id: 'r1', state: 'COMPLETED', reason: '', message: '' } as const;
  const decrease = (state: 'DEFERRED' | 'STATE_UNSPECIFIED'): Messages['Pod'] => ({
    ...pod,
    last_resize: last,
    kubelet: { values: pod.values!, state, reason: '', message: '', reclaimed_bytes: 0 },
  });
  expect(podsTable([decrease('DEFERRED')])).toMatch(/ Deferred\n$/);
  expect(podsTable([decrease('STATE_UNSPECIFIED')])).toMatch(/ Completed\n$/);
});
