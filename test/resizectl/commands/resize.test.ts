import { afterEach, expect, test, vi } from 'vitest';
import { encodeStatusDetails } from '../../../src/server/unary/status.ts';
import { resize } from '../../../src/resizectl/commands/resize.ts';
import type { Context } from '../../../src/resizectl/commands/context.ts';

afterEach(() => {
  vi.useRealTimers();
});

const identity = { sandbox_id: 'a'.repeat(64), uid: 'u', namespace: 'default', name: 'web' };
const trial = { id: '', pod: identity, tries: 0, steps: [], created: { seconds: 0, nanos: 0 } };

/** Runs a dry run that the shim answers with this resize. Returns the exit code, the output and what was asked. */
async function dryRun(answer: object, options: object = {}, output: Context['output'] = 'table') {
  let printed = '';
  const asked: unknown[] = [];
  const call = (method: string, request: object): Promise<object> => {
    if (method === 'ListPods') return Promise.resolve({ pods: [{ identity }] });
    if (method === 'GetPod') return Promise.resolve({ pod: { identity } });
    asked.push(request);
    return Promise.resolve({ resize: { ...trial, ...answer } });
  };
  const context = { client: { call }, output, namespace: undefined, print: (text: string) => void (printed += text) };
  const exit = await resize(context as unknown as Context, 'web', ['app.memory=1Gi'], { dryRun: true, ...options });
  return { exit, printed, asked };
}

const deferred = {
  state: 'DEFERRED',
  reason: 'NO_RUNNING_CONTAINER',
  message: 'pod default/web: app does not run: the resize waits for the next start',
};

test('a dry run with --defer prints why the resize would be deferred, and exits as a deferred resize', async () => {
  const { exit, printed, asked } = await dryRun(deferred, { defer: true });
  expect(printed).toBe(
    'a resize of default/web would be deferred: NO_RUNNING_CONTAINER: pod default/web: app does not run: the resize waits ' +
      'for the next start\n',
  );
  expect(exit).toBe(4);
  expect(asked).toMatchObject([{ dry_run: true, defer: true }]);
  const object = await dryRun(deferred, { defer: true }, 'json');
  expect(JSON.parse(object.printed)).toMatchObject({ resize: deferred });
  expect(object.exit).toBe(4);
});

test('a dry run of a resize that fits prints its steps', async () => {
  const step = {
    kind: 'POD_MEMORY',
    target: '',
    text: 'pod memory.max 1 -> 2',
    at: trial.created,
    took: trial.created,
  };
  const proposed = { state: 'PROPOSED', reason: '', message: '', steps: [step] };
  const { exit, printed, asked } = await dryRun(proposed);
  expect(printed).toContain('pod memory.max 1 -> 2');
  expect(exit).toBe(0);
  expect(asked).toMatchObject([{ dry_run: true, defer: false }]);
});

test('a resize ends with its own error, not an unknown resize, if the shim restarted in the meantime', async () => {
  const failed = Object.assign(new Error('13 INTERNAL: rollback failed'), {
    code: 13,
    details: 'rollback failed',
    metadata: {
      get: () => [encodeStatusDetails(13, 'rollback failed', { reason: 'UNDO_FAILED', metadata: { resize: 'r1' } })],
    },
  });
  const call = (method: string): Promise<object> => {
    if (method === 'ListPods') return Promise.resolve({ pods: [{ identity }] });
    if (method === 'GetPod') return Promise.resolve({ pod: { identity } });
    return Promise.reject(method === 'GetResize' ? new Error('5 NOT_FOUND: no resize r1') : failed);
  };
  const context = { client: { call }, output: 'json', namespace: undefined, print: () => undefined };
  await expect(resize(context as unknown as Context, 'web', ['app.memory=1Gi'], {})).rejects.toBe(failed);
});

test('a resize without a last event ends 2 s after the answer, with the state of the answer', async () => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
  let printed = '';
  let cancel = (): void => undefined;
  const canceled = new Promise<void>((resolve) => (cancel = resolve));
  const watch = {
    opened: Promise.resolve(),
    cancel,
    // No event, until resizectl cancels the watch.
    [Symbol.asyncIterator]: () => ({ next: () => canceled.then(() => ({ done: true, value: undefined })) }),
  };
  const answer = { ...trial, id: 'r1', state: 'DEFERRED', reason: 'RECLAIM_TIMEOUT', message: 'it takes longer' };
  const call = (method: string): Promise<object> => {
    if (method === 'ListPods') return Promise.resolve({ pods: [{ identity }] });
    return Promise.resolve(method === 'GetPod' ? { pod: { identity } } : { resize: answer });
  };
  const print = (text: string): void => void (printed += text);
  const context = { client: { call, watch: () => watch }, output: 'table', namespace: undefined, print };
  let exit: number | undefined;
  const running = resize(context as unknown as Context, 'web', ['app.memory=1Gi'], { defer: true });
  running.then((code) => (exit = code)).catch(() => undefined);
  await vi.advanceTimersByTimeAsync(1900);
  expect([printed, exit]).toEqual(['', undefined]);
  await vi.advanceTimersByTimeAsync(200);
  expect(exit).toBe(4);
  expect(printed).toContain('RECLAIM_TIMEOUT: it takes longer');
});
