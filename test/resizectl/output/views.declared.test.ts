import { expect, test } from 'vitest';
import type { Messages } from '../../../src/server/api/messages.ts';
import { objectText } from '../../../src/resizectl/output/text.ts';
import { podDescription } from '../../../src/resizectl/output/views.ts';

const pod: Messages['Pod'] = {
  identity: { sandbox_id: 'a', uid: 'u', namespace: 'default', name: 'web' },
  unreadable: { reason: 'CGROUP_UNAVAILABLE', message: 'no file' },
};

test('describe shows all declared containers with kind, state and limits, and their source', () => {
  const declared = {
    source: 'kubelet-state',
    containers: [
      { name: 'web', kind: 'app', state: 'running', limits: { cpu: '500m', memory: '128Mi' } },
      { name: 'debugger', kind: 'ephemeral', state: 'running', limits: { cpu: '', memory: '' } },
      { name: 'log', kind: 'unknown', state: 'declared', limits: { cpu: '', memory: '' } },
    ],
  };
  expect(podDescription({ ...pod, declared })).toContain(
    [
      'Declared (from kubelet-state):',
      '                       KIND        STATE      CPU    MEMORY',
      '  container web        app         running    500m   128Mi',
      '  container debugger   ephemeral   running',
      '  container log        unknown     declared',
      '',
    ].join('\n'),
  );
  expect(JSON.parse(objectText({ ...pod, declared }, 'json'))).toMatchObject({ declared });
});

test('describe shows no declared containers for a pod that no source knows', () => {
  expect(podDescription(pod)).not.toContain('Declared');
  expect(podDescription({ ...pod, declared: { source: 'inference', containers: [] } })).not.toContain('Declared');
});
