import { beforeEach, describe, expect, test } from 'vitest';
import type { CommandResult, ShimRun } from '../../../src/install/rollout/host.ts';
import { keepNode, type NodeProgram, READY } from '../../../src/install/rollout/keep-node.ts';
import type { Drift } from '../../../src/kubelet/endpoint/drift.ts';
import { ApiUnreached } from '../../../src/kubernetes/client/errors.ts';
import { FakeClock } from '../../support/fake-clock.ts';

/** The pod of a node, without a host. test/e2e/install/installer.test.ts runs it on a node with systemd. */

const MINUTE = 60_000;
const done: CommandResult = { code: 0, lines: [] };
const through: Drift = { state: 'shim', note: '' };
const past: Drift = { state: 'past', note: 'kubelet is configured to use unix:///run/containerd/containerd.sock' };

let clock: FakeClock;
/** The results of the readiness probe, in order. */
let states: string[];
/** The calls of resizectl. */
let calls: string[];
let isStaged: boolean;
let node: {
  result: () => CommandResult | Promise<CommandResult>;
  drift: () => Drift;
  shim: () => ShimRun;
  isReady: () => boolean;
};
let stop: AbortController;

beforeEach(() => {
  [clock, states, calls, isStaged, stop] = [new FakeClock(), [], [], false, new AbortController()];
  node = { result: () => done, drift: () => through, shim: () => ({ isActive: true, run: '1' }), isReady: () => true };
});

/** Starts the pod. Resolves when it has ended. */
function start(options: Partial<NodeProgram> = {}): Promise<unknown> {
  const program: NodeProgram = {
    mode: 'install',
    host: {
      resizectl: (args) => {
        expect(isStaged, 'the program is on the host').toBe(true);
        calls.push(args.join(' '));
        return Promise.resolve(node.result());
      },
      shim: () => new Promise((resolve) => resolve(node.shim())),
    },
    stage: () => Promise.resolve(void (isStaged = true)),
    unstage: () => Promise.resolve(void (isStaged = false)),
    flags: ['--timeout', '2m'],
    isNodeReady: () => Promise.resolve(node.isReady()),
    drift: () => Promise.resolve(node.drift()),
    repairsDrift: false,
    report: (state) => Promise.resolve(void states.push(state)),
    say: () => undefined,
    clock,
    ...options,
  };
  return keepNode(program, stop.signal).catch((error: unknown) => error);
}
const state = (): string => states.at(-1) ?? '';
const ready = (): Promise<void> => clock.until(() => state() === READY, MINUTE);

describe('a pod with the mode install', () => {
  test('install: the pod is ready once resizectl has installed the shim, kubelet uses it and the node is Ready', async () => {
    let [isNodeReady, used] = [false, past];
    node = { ...node, isReady: () => isNodeReady, drift: () => used };
    void start();
    await clock.elapse(MINUTE);
    expect([calls, state(), isStaged]).toEqual([['install --timeout 2m'], past.note, false]);
    used = through;
    await clock.elapse(MINUTE);
    expect(state()).toBe('this node is not Ready');
    isNodeReady = true;
    await ready();
    expect(calls).toHaveLength(1);
  });

  test('install: an installation that fails is not tried again, because each try restarts kubelet', async () => {
    node.result = () => ({ code: 1, lines: ['failed: start the shim: no', 'rolled back: write'] });
    void start();
    await clock.elapse(24 * 60 * MINUTE);
    expect([calls, state(), isStaged]).toEqual([
      ['install --timeout 2m'],
      'failed: start the shim: no; delete this pod to try again',
      false,
    ]);
  });

  test.each([
    [2, 'resizectl: nothing was changed: kubelet.service is inactive'],
    [7, 'resizectl: nothing was changed: another installation runs (pid 7)'],
    [1, 'Failed to start transient service unit: Unit was already loaded or has a fragment file.'],
    [127, '/usr/bin/env: error while loading shared libraries: libatomic.so.1: cannot open shared object file'],
  ])('an installation that has changed nothing (exit code %i: %s) is tried again', async (code, line) => {
    let tries = 0;
    node.result = () => ((tries += 1) < 3 ? { code, lines: [line] } : done);
    void start();
    await clock.until(() => tries === 2, MINUTE);
    expect(state()).toContain(line);
    await clock.until(() => state() === READY, 2 * MINUTE);
    expect([tries, isStaged]).toEqual([3, false]);
  });

  test('a program that cannot be copied to the host is reported, and tried again', async () => {
    let isFull = true;
    void start({
      stage: () => (isFull ? Promise.reject(new Error('ENOSPC')) : Promise.resolve(void (isStaged = true))),
    });
    await clock.elapse(MINUTE);
    expect([state(), calls]).toEqual(['ENOSPC', []]);
    isFull = false;
    await ready();
  });

  test.each([
    ['does not run', (): ShimRun => ({ isActive: false, run: '' }), 'the shim does not run'],
    [
      'is started again, for half a minute after each start,',
      (): ShimRun => ({ isActive: true, run: `${clock.now()}` }),
      'the shim has ended and was started again',
    ],
    [
      'is unknown to systemd',
      (): ShimRun => {
        throw new Error('systemd does not answer');
      },
      'systemd does not answer',
    ],
  ])('the pod is not ready while the shim %s', async (_, shim, why) => {
    void start();
    await ready();
    const before = node.shim;
    node.shim = shim;
    await clock.elapse(MINUTE);
    expect(state()).toBe(why);
    node.shim = before;
    await ready();
    // Only kubelet's use of another runtime is repaired.
    expect(calls).toHaveLength(1);
  });

  test('the state stays while the API server does not answer, and a pod is not ready before it has answered', async () => {
    let isAway = true;
    const isNodeReady = (): Promise<boolean> =>
      isAway ? Promise.reject(new ApiUnreached('connect ECONNREFUSED')) : Promise.resolve(true);
    void start({ isNodeReady });
    await clock.elapse(MINUTE);
    expect(state()).toBe('the API server does not answer: connect ECONNREFUSED');
    isAway = false;
    await ready();
    isAway = true;
    await clock.elapse(10 * MINUTE);
    expect(state()).toBe(READY);
  });

  test('a node that has been ready for five minutes is checked once in a minute, and a pod that is not ready every 10 s', async () => {
    let checks = 0;
    let isNodeReady = true;
    void start({ isNodeReady: () => Promise.resolve(((checks += 1), isNodeReady)) });
    await clock.elapse(6 * MINUTE);
    checks = 0;
    await clock.elapse(10 * MINUTE);
    expect(checks).toBeLessThanOrEqual(11);
    isNodeReady = false;
    await clock.elapse(2 * MINUTE);
    checks = 0;
    await clock.elapse(MINUTE);
    expect(checks).toBeGreaterThanOrEqual(5);
  });
});

describe('a kubelet that no longer uses the shim', () => {
  test('the pod says so and is not ready', async () => {
    void start();
    await ready();
    node.drift = () => past;
    await clock.elapse(60 * MINUTE);
    expect([state(), calls]).toEqual([past.note, ['install --timeout 2m']]);
  });

  test('with --repair-drift, the shim is installed again, at most every 10 minutes', async () => {
    void start({ repairsDrift: true });
    await ready();
    await clock.elapse(20 * MINUTE);
    node.drift = () => past;
    await clock.until(() => calls.length === 2, 2 * MINUTE);
    const first = clock.passed;
    await clock.until(() => calls.length === 3, 20 * MINUTE);
    expect(clock.passed - first).toBeGreaterThanOrEqual(10 * MINUTE);
    node.drift = () => through;
    await ready();
  });

  test('a file that is read while it is written is no reason for a repair', async () => {
    void start({ repairsDrift: true });
    await clock.elapse(20 * MINUTE);
    let looks = 0;
    node.drift = () => ((looks += 1) % 2 === 0 ? through : past);
    await clock.elapse(20 * MINUTE);
    expect(calls).toHaveLength(1);
  });
});

describe('a pod with the mode uninstall', () => {
  const uninstall = { mode: 'uninstall', flags: [] } as const;

  test('install: the pod is ready once resizectl has removed the shim and the node is Ready', async () => {
    let isNodeReady = false;
    node = { ...node, isReady: () => isNodeReady, drift: () => past, shim: () => ({ isActive: false, run: '' }) };
    void start(uninstall);
    await clock.elapse(MINUTE);
    expect([calls, state()]).toEqual([['uninstall'], 'this node is not Ready']);
    isNodeReady = true;
    await ready();
  });

  test('the pod is not ready while the shim runs again', async () => {
    node.shim = () => ({ isActive: false, run: '' });
    void start(uninstall);
    await ready();
    node.shim = () => ({ isActive: true, run: '2' });
    await clock.elapse(MINUTE);
    expect([state(), calls]).toEqual(['the shim runs again', ['uninstall']]);
  });

  test('install: a removal that fails is reported with what is left, and not tried again', async () => {
    node.result = () => ({ code: 6, lines: ['failed: a: no', 'NOT rolled back: b: no', 'left in place: c'] });
    void start(uninstall);
    await clock.elapse(60 * MINUTE);
    expect([calls, state()]).toEqual([
      ['uninstall'],
      'failed: a: no; NOT rolled back: b: no; left in place: c; delete this pod to try again',
    ]);
  });
});

describe('the end of the pod', () => {
  test('install: a pod that ends waits for resizectl and removes the copied program', async () => {
    const { promise, resolve } = Promise.withResolvers<CommandResult>();
    node.result = () => promise;
    const ended = start();
    await clock.until(() => calls.length === 1, MINUTE).catch(() => undefined);
    stop.abort(new Error('ended by SIGTERM'));
    expect(isStaged).toBe(true);
    resolve(done);
    expect([String(await ended), isStaged, state()]).toEqual([
      'Error: ended by SIGTERM',
      false,
      'resizectl install runs on this node',
    ]);
  });

  test('a pod that ends while it copies the program does not start resizectl', async () => {
    const { promise, resolve } = Promise.withResolvers<undefined>();
    const ended = start({ stage: () => promise });
    stop.abort(new Error('ended by SIGTERM'));
    resolve(undefined);
    expect([String(await ended), calls]).toEqual(['Error: ended by SIGTERM', []]);
  });

  test('a state that cannot be written, or is long, does not end the pod', async () => {
    node.result = () => ({ code: 2, lines: ['x'.repeat(100_000)] });
    void start({ report: (text) => (states.push(text), Promise.reject(new Error('ENOSPC'))) });
    await clock.elapse(10 * MINUTE);
    expect([calls.length > 5, state().length]).toEqual([true, 1000]);
  });

  test('a pod that ends leaves the node as it is', async () => {
    const ended = start();
    await ready();
    stop.abort(new Error('ended by SIGTERM'));
    await ended;
    expect(calls).toEqual(['install --timeout 2m']);
  });
});
