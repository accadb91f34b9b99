import { expect, test } from 'vitest';
import { ResizeHistory } from '../../../src/sandbox/history/history.ts';
import { overviewOf } from '../../../src/sandbox/report/overview.ts';
import type { PodDirectory } from '../../../src/sandbox/report/pod-directory.ts';

const identity = (name: string) => ({ sandboxId: `${name}-sandbox`, uid: `uid-${name}`, namespace: 'default', name });
const [web, db] = [identity('web'), identity('db')];

test('the overview contains the stored resizes of each pod, even if they are not among the newest of the node', async () => {
  const history = new ResizeHistory();
  const put = (id: string, pod: typeof web): void => {
    const rest = { createdAt: 0, changedAt: 0, count: 1, isRolledBack: false, reason: undefined, message: undefined };
    history.put({ id, pod, requester: { kind: 'api' }, state: 'Completed', changes: [], ...rest });
  };
  put('of web', web);
  for (let index = 0; index < 60; index += 1) put(`of db ${index}`, db);
  const pods = {
    list: () => Promise.resolve([web, db].map((pod) => ({ pod, containers: [], volumes: [] }))),
    listContainers: () => Promise.resolve(new Map()),
    describe: () => Promise.resolve({ reason: 'CGROUP_UNAVAILABLE', message: 'no file' }),
  } as unknown as PodDirectory;
  const { pods: seen, history: ofNode } = await overviewOf({ history }, pods);
  expect(seen.map(({ pod, history: ofPod }) => [pod.name, ofPod.length, ofPod[0]?.id])).toEqual([
    ['web', 1, 'of web'],
    ['db', 10, 'of db 59'],
  ]);
  expect(ofNode.some(({ pod }) => pod === web)).toBe(false);
});
