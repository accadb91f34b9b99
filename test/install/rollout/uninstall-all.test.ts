import { Readable } from 'node:stream';
import { beforeEach, expect, test } from 'vitest';
import { uninstallAll } from '../../../src/install/rollout/uninstall-all.ts';
import type { Api, ApiRequest } from '../../../src/kubernetes/client/api.ts';
import { ApiRefusal, ApiUnreached } from '../../../src/kubernetes/client/errors.ts';
import { FakeClock } from '../../support/fake-clock.ts';

const MINUTE = 60_000;
let clock: FakeClock;
let requests: ApiRequest[];
let lines: string[];
/** The status of each DaemonSet, or the error of the request. */
let sets: Record<string, object | Error>;

beforeEach(() => ([clock, requests, lines, sets] = [new FakeClock(), [], [], {}]));

const api: Api = (request) => {
  requests.push(request);
  const name = request.path.split('/').at(-1) ?? '';
  const status = sets[name] ?? new ApiRefusal(404, 'not found');
  if (status instanceof Error) return Promise.reject(status);
  const metadata = { name, generation: 2 };
  return Promise.resolve(Readable.from([Buffer.from(JSON.stringify({ metadata, status }))]));
};
const names = ['cri-resize-shim-installer', 'cri-resize-shim-canary'];
const run = (signal = new AbortController().signal): { code: () => number | undefined } => {
  let code: number | undefined;
  void uninstallAll(['--namespace=shim', ...names], { api, clock, say: (line) => void lines.push(line) }, signal).then(
    (ended) => (code = ended),
  );
  return { code: () => code };
};
const ended = { observedGeneration: 2, desiredNumberScheduled: 3, updatedNumberScheduled: 3, numberAvailable: 3 };

test('install: helm uninstall gives the DaemonSets the mode uninstall, and waits until the pods of all nodes are available', async () => {
  sets = { [names[0]!]: { ...ended, observedGeneration: 1 }, [names[1]!]: { ...ended, numberAvailable: 1 } };
  const { code } = run();
  await clock.elapse(MINUTE);
  expect(code()).toBeUndefined();
  expect(lines).toEqual(['waiting: cri-resize-shim-installer: 0 of 3 nodes; cri-resize-shim-canary: 1 of 3 nodes']);
  expect(requests[0]).toMatchObject({
    ...{ method: 'PATCH', path: '/apis/apps/v1/namespaces/shim/daemonsets/cri-resize-shim-installer' },
    isStrategic: true,
    body: {
      spec: {
        updateStrategy: { type: 'RollingUpdate' },
        template: {
          spec: { containers: [{ name: 'installer', env: [{ name: 'INSTALLER_MODE', value: 'uninstall' }] }] },
        },
      },
    },
  });
  sets = { [names[0]!]: ended, [names[1]!]: { ...ended, updatedNumberScheduled: 2 } };
  await clock.elapse(MINUTE);
  expect(lines.at(-1)).toBe('waiting: cri-resize-shim-canary: 2 of 3 nodes');
  sets = { [names[0]!]: ended };
  await clock.until(() => code() !== undefined, MINUTE);
  expect([code(), lines.at(-1)]).toEqual([0, 'the shim is removed from all nodes']);
});

test('helm uninstall ends at once if no node has the label', async () => {
  sets = { [names[0]!]: { observedGeneration: 2, desiredNumberScheduled: 0 } };
  const { code } = run();
  await clock.until(() => code() === 0, MINUTE).catch(() => undefined);
  expect(code()).toBe(0);
});

test('helm uninstall waits through an outage of the API server', async () => {
  sets = { [names[0]!]: new ApiUnreached('connect ECONNREFUSED') };
  const { code } = run();
  await clock.elapse(60 * MINUTE);
  expect([code(), lines]).toEqual([undefined, ['waiting: connect ECONNREFUSED']]);
});

test('helm uninstall fails if its right is missing for 30 s, and names it', async () => {
  sets = { [names[0]!]: new ApiRefusal(403, 'daemonsets.apps is forbidden') };
  const { code } = run();
  await clock.elapse(20_000);
  expect(code()).toBeUndefined();
  await clock.until(() => code() === 1, MINUTE);
  expect(lines.at(-1)).toBe(
    'HTTP 403: daemonsets.apps is forbidden: kubectl get pods -n shim shows the pods that are not ready; repeat to continue',
  );
});

test('helm uninstall fails when its time is over, and says how to find the nodes', async () => {
  sets = { [names[0]!]: { ...ended, numberAvailable: 2 } };
  const stop = new AbortController();
  const { code } = run(stop.signal);
  await clock.elapse(MINUTE);
  sets = { [names[0]!]: new Error('aborted') };
  stop.abort(new Error('ended by SIGTERM'));
  await clock.until(() => code() === 1, MINUTE).catch(() => undefined);
  expect([code(), lines.at(-1)]).toEqual([
    1,
    'the time is over: kubectl get pods -n shim shows the pods that are not ready; repeat to continue',
  ]);
});
