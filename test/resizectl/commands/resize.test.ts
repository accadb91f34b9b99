import { afterEach, describe, expect, test, vi } from 'vitest';
import { parseChanges } from '../../../src/resizectl/commands/changes.ts';
import type { Context } from '../../../src/resizectl/commands/context.ts';
import { kubeletNotes, resize, roundingNotes } from '../../../src/resizectl/commands/resize.ts';
import type { Messages } from '../../../src/server/api/messages.ts';
import { encodeStatusDetails } from '../../../src/server/unary/status.ts';

describe('resizectl resize', () => {
  afterEach(() => {
    vi.useRealTimers();
  });

  const identity = { sandbox_id: 'a'.repeat(64), uid: 'u', namespace: 'default', name: 'web' };
  const trial = { id: '', pod: identity, tries: 0, steps: [], created: { seconds: 0, nanos: 0 } };

  /** Runs a dry run that the shim answers with this resize. Returns the exit code, the output and the requests. */
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
      // The watch has no event until resizectl cancels it.
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
});

const pod = (source: string, name = 'web') => ({
  identity: { sandbox_id: 'a', uid: 'u', namespace: 'default', name },
  declared: { source, containers: [] },
});

describe('a resize of a pod that kubelet manages', () => {
  test('the notes of a resize say what kubelet does, and which command makes the resize permanent', () => {
    const notes = kubeletNotes(pod('kubelet-state'), parseChanges(['app.memory=1Gi', 'app.requests.cpu=250m']));
    expect(notes[0]).toContain('kubelet manages pod default/web and does not know of this resize.');
    expect(notes[1]).toBe(
      'To make it last, tell the API server:\n' +
        '  kubectl patch pod web -n default --subresource resize --patch ' +
        `'{"spec":{"containers":[{"name":"app","resources":{"limits":{"memory":"1Gi"},"requests":{"cpu":"250m"}}}]}}'`,
    );
    expect(notes).toHaveLength(2);
  });

  test('the patch command lists sidecars and init containers under initContainers of the spec', () => {
    const kinds = { proxy: 'sidecar', setup: 'init', app: 'app' };
    const containers = Object.entries(kinds).map(([name, kind]) => ({
      name,
      kind,
      state: 'running',
      limits: { cpu: '', memory: '' },
    }));
    const changes = parseChanges(['proxy.cpu=1', 'app.cpu=2', 'setup.cpu=3']);
    const [, command] = kubeletNotes({ ...pod('spec'), declared: { source: 'spec', containers } }, changes);
    expect(JSON.parse(/--patch '(.*)'$/.exec(command ?? '')?.[1] ?? '')).toEqual({
      spec: {
        containers: [{ name: 'app', resources: { limits: { cpu: '2' } } }],
        initContainers: [
          { name: 'proxy', resources: { limits: { cpu: '1' } } },
          { name: 'setup', resources: { limits: { cpu: '3' } } },
        ],
      },
    });
    const only = kubeletNotes(
      { ...pod('spec'), declared: { source: 'spec', containers } },
      parseChanges(['proxy.cpu=1']),
    );
    expect(only[1]).toContain('{"spec":{"initContainers":[{"name":"proxy"');
  });

  test('the notes for a static pod name its manifest, because the API server does not resize it', () => {
    const { identity, declared } = pod('kubelet-state');
    const uid = '0123456789abcdef0123456789abcdef';
    const notes = kubeletNotes({ identity: { ...identity, uid }, declared }, parseChanges(['app.memory=1Gi']));
    expect(notes[1]).toBe('To make it last, change the manifest of this static pod on its node.');
    expect(notes).toHaveLength(2);
  });

  test('the notes name the changes that have no value in the API server', () => {
    const only = kubeletNotes(pod('spec'), parseChanges(['app.memory=max', 'volume.cache=50%', 'pod.cpu=1']));
    expect(only).toHaveLength(2);
    expect(only[1]).toContain("a removed limit, the pod's own values and volumes; docs/volumes.md has the annotation");
    const both = kubeletNotes(pod('spec'), parseChanges(['app.memory=max', 'app.cpu=1']));
    expect(both[1]).toContain(`{"name":"app","resources":{"limits":{"cpu":"1"}}}`);
    expect(both).toHaveLength(3);
  });

  test('a resize of a pod that a CRI client manages has no note', () => {
    expect(kubeletNotes(pod('inference'), parseChanges(['app.memory=1Gi']))).toEqual([]);
  });

  test('the patch command quotes names for the shell, and has no control characters', () => {
    const [, command] = kubeletNotes(pod('spec', "x'; rm -rf /\u001b"), parseChanges(['app.memory=1Gi']));
    expect(command).toContain(`kubectl patch pod 'x'\\''; rm -rf /?' -n default`);
  });
});

describe('a limit that the kernel rounds', () => {
  const values = (cpu: string, memory: string): Messages['Values'] => ({
    limits: { cpu, memory },
    requests: { cpu: '', memory: '' },
    ...{ cpu_max: '', memory_max: '', cpu_shares: 0, cpu_weight: 0, memory_used_bytes: 0 },
  });
  const after = (cpu: string, memory: string) => ({
    after: {
      pod: values('max', 'max'),
      containers: [{ id: 'c', name: 'app', values: values(cpu, memory) }],
      volumes: [],
    },
  });

  test.each([
    [
      ['app.cpu=1m'],
      after('10m', 'max'),
      ['note: container app.cpu: 1m becomes 10m: the smallest CPU limit is 10m (1 ms of each 100 ms)'],
    ],
    // Another program has set the limit, or systemd has rounded it.
    [['app.cpu=125m'], after('130m', 'max'), ['note: container app.cpu: 125m becomes 130m']],
    [
      ['app.memory=66000'],
      after('max', '65536'),
      ['note: container app.memory: 66000 becomes 64Ki: the kernel counts whole pages'],
    ],
    [['app.cpu=0.5', 'app.memory=1Gi'], after('500m', '1Gi'), []],
    [['app.memory=max'], after('max', 'max'), []],
    [['app.cpu=1m'], {}, []],
  ])('prints a note only if the kernel rounds a limit: %j', (changes, result, notes) => {
    expect(roundingNotes(parseChanges(changes), result)).toEqual(notes);
  });
});
