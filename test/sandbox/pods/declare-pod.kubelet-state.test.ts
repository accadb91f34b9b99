import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { bytes } from '../../../src/core/quantities/numbers.ts';
import { decode } from '../../../src/runtime/codec.ts';
import { FakeDeclaringRuntime, EXITED, PRE_STOP, RUNNING, lines } from '../../support/fake-declaring-runtime.ts';

let given: FakeDeclaringRuntime;
beforeEach(async () => {
  given = await FakeDeclaringRuntime.start();
});
afterEach(() => given.close());

describe("pod declared by kubelet's state", () => {
  test('regards a listed container that was not created as declared, and one that failed as ended', async () => {
    given.has({ name: 'a', state: RUNNING }, { name: 'b', state: EXITED, limit: 200, exitCode: 1 });
    given.kubeletAdmitted({ a: 100, b: 200, c: 50 });
    const pod = await given.declared();
    expect(pod.source).toBe('kubelet-state');
    expect(lines(pod)).toEqual([
      'a app running, 100',
      // It may be an init container that fails, with c waiting for it.
      'b unknown ended, 200, may be init',
      'c unknown declared, 50, may be init',
    ]);
  });

  test('A3: an unlisted container with limits is an init container, and one created before it is a sidecar', async () => {
    given.has({ name: 'proxy', state: RUNNING }, { name: 'init', state: RUNNING, limit: 300 });
    given.kubeletAdmitted({ proxy: 10, web: 290 });
    expect(lines(await given.declared())).toEqual([
      'proxy sidecar running, 10',
      'init init running, 300, fixed',
      'web unknown declared, 290, may be init',
    ]);
  });

  test('A2: an unlisted container that runs once all others were created is an ephemeral one', async () => {
    given.has(
      { name: 'init', state: EXITED, limit: 20 },
      { name: 'web', state: RUNNING },
      { name: 'debugger', state: RUNNING },
    );
    given.kubeletAdmitted({ web: 100 });
    expect(lines(await given.declared())).toEqual([
      'init init ended, 20, fixed',
      'web app running, 100',
      'debugger ephemeral running, no limit',
    ]);
  });

  test('an unlisted container of unknown kind does not count in the pod limit', async () => {
    given.has({ name: 'first', state: RUNNING });
    given.kubeletAdmitted({ web: 100 });
    expect(lines(await given.declared())).toEqual([
      'first unknown running, no limit, uncounted',
      'web unknown declared, 100, may be init',
    ]);
    // With a pod-level limit an ephemeral container inherits it.
    given.has({ name: 'first', state: EXITED, limit: 400 });
    given.kubeletAdmitted({ web: 100 }, 400);
    expect(lines(await given.declared())[0]).toBe('first unknown ended, 400, uncounted');
  });

  test('A9: a listed container that ended with 0 may be an app or an init container, unless it has a preStop hook', async () => {
    given.has(
      { name: 'a', state: EXITED, limit: 50 },
      { name: 'b', state: EXITED, limit: 50, annotations: PRE_STOP },
      { name: 'c', state: RUNNING },
    );
    given.kubeletAdmitted({ a: 50, b: 50, c: 100 });
    expect(lines(await given.declared())).toEqual([
      'a unknown ended, 50, may be init',
      'b app ended, 50',
      'c app running, 100',
    ]);
  });

  test('returns pod-level limits and requests, and the requests of containers', async () => {
    given.has({ name: 'a', state: RUNNING });
    given.kubeletAdmitted({ a: 100, b: 50 });
    const without = await given.declared();
    expect([without.limits, without.requests, without.containers.map(({ requests }) => requests)]).toEqual([
      undefined,
      undefined,
      [undefined, undefined],
    ]);
    expect(Object.keys(without)).not.toContain('limits');
    given.kubeletAdmitted({ a: 100, b: 50 }, 400);
    const [own, level] = [{ memory: bytes(10 * MiB) }, { memory: bytes(90 * MiB) }];
    const requests = { containers: new Map([['a', own]]), pod: level };
    given.runtime.allocated.set('uid-1', { ...given.runtime.allocated.get('uid-1')!, requests });
    const pod = await given.declared();
    expect([pod.limits, pod.requests]).toEqual([{ memory: 400 * MiB }, level]);
    expect(pod.containers.map((one) => one.requests)).toEqual([own, undefined]);
  });

  test('a listed container that failed is an app container once all others were created', async () => {
    given.has(
      { name: 'a', state: RUNNING },
      { name: 'b', state: EXITED, limit: 50, exitCode: 1 },
      { name: 'c', state: RUNNING },
    );
    given.kubeletAdmitted({ a: 100, b: 50, c: 100 });
    expect(lines(await given.declared())[1]).toBe('b app ended, 50');
  });

  test('an unlisted container with only a CPU limit has limits of its own, and is an init container', async () => {
    given.has({ name: 'setup', state: EXITED, milliCpu: 250 }, { name: 'web', state: RUNNING });
    given.kubeletAdmitted({ web: 100 });
    const [setup] = (await given.declared()).containers;
    expect(setup).toMatchObject({ kind: 'init', limits: { milliCpu: 250 } });
    expect(setup?.limits).not.toHaveProperty('memory');
  });

  test("a container that is removed during the lookup is still declared if kubelet's state lists it", async () => {
    given.has({ name: 'gone', state: EXITED }, { name: 'a', state: EXITED }, { name: 'web', state: RUNNING });
    given.kubeletAdmitted({ a: 30, web: 100 });
    given.runtime.wrapResponder('ContainerStatus', (request, respond) => {
      if (/gone-0|a-1/.test(decode('ContainerStatusRequest', request).container_id))
        throw new Error('no such container');
      return respond(request);
    });
    expect(lines(await given.declared())).toEqual([
      'gone unknown ended, uncounted',
      'a app ended, 30',
      'web app running, 100',
    ]);
    given.runtime.allocated.clear();
    expect(lines(await given.declared())).toEqual(['gone unknown ended', 'a unknown ended', 'web unknown running']);
  });

  test('asks the runtime only for containers that do not run and for those that are not listed', async () => {
    given.has({ name: 'a', state: RUNNING }, { name: 'b', state: EXITED }, { name: 'x', state: RUNNING });
    const asked = async (): Promise<string[]> => {
      const ids: string[] = [];
      given.runtime.wrapResponder('ContainerStatus', (request, respond) => {
        ids.push(decode('ContainerStatusRequest', request).container_id);
        return respond(request);
      });
      await given.declared();
      return ids.sort();
    };
    given.kubeletAdmitted({ a: 100, b: 50 });
    expect(await asked()).toEqual(['b-1', 'x-2']);
    given.runtime.allocated.clear();
    expect(await asked()).toEqual(['b-1']);
  });

  test("does not use kubelet's state if a part of it is not understood", async () => {
    given.has({ name: 'a', state: RUNNING });
    given.kubeletAdmitted({ b: 100 });
    given.runtime.allocated.set('uid-1', { ...given.runtime.allocated.get('uid-1')!, isComplete: false });
    expect((await given.declared()).source).toBe('inference');
  });
});
