import { describe, expect, test } from 'vitest';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { type ApiPod, specOf } from '../../../src/kubernetes/pods/pod.ts';
import { SpecStore } from '../../../src/kubernetes/pods/spec-store.ts';

const notRequired = { cpu: 'NotRequired', memory: 'NotRequired' };

describe('the spec of a pod', () => {
  test('the spec lists init containers and sidecars in their order, then app and ephemeral containers', () => {
    const spec = specOf(
      {
        initContainers: [{ name: 'first' }, { name: 'proxy', restartPolicy: 'Always' }, { name: 'second' }],
        containers: [{ name: 'web' }, { name: 'log' }],
        ephemeralContainers: [{ name: 'debugger' }],
      },
      undefined,
    );
    expect(spec?.containers.map(({ name, kind }) => `${name} ${kind}`)).toEqual([
      'first init',
      'proxy sidecar',
      'second init',
      'web app',
      'log app',
      'debugger ephemeral',
    ]);
  });

  test('the restart policy of an app container is its own or the one of the pod', () => {
    const policies = (pod: object): unknown[] =>
      specOf(pod, undefined)?.containers.map(({ restartPolicy }) => restartPolicy) ?? [];
    const containers = [{ name: 'web' }, { name: 'log', restartPolicy: 'Never' }];
    const initContainers = [{ name: 'first' }, { name: 'proxy', restartPolicy: 'Always' }];
    expect(policies({ restartPolicy: 'OnFailure', initContainers, containers })).toEqual([
      undefined,
      undefined,
      'OnFailure',
      'Never',
    ]);
    expect(policies({ containers })).toEqual([undefined, 'Never']);
    expect(policies({ restartPolicy: 'Sometimes', containers })).toEqual([undefined, 'Never']);
    // A rule of one container may restart all of them.
    const restartPolicyRules = [{ action: 'RestartAllContainers', exitCodes: { operator: 'In', values: [42] } }];
    for (const ruled of [
      { containers: [...containers, { name: 'ruled', restartPolicyRules }] },
      { initContainers: [{ name: 'ruled', restartPolicyRules }], containers },
    ])
      expect(new Set(policies({ restartPolicy: 'Never', ...ruled }))).toEqual(new Set([undefined]));
  });

  test('the spec has limits, requests, resize policies, pod-level values, QoS class, priority and size limits', () => {
    const resources = { limits: { cpu: '500m', memory: '128Mi', 'vendor/gpu': '1' }, requests: { cpu: 0.25 } };
    const resizePolicy = [{ resourceName: 'memory', restartPolicy: 'RestartContainer' }];
    const spec = specOf(
      {
        containers: [
          { name: 'web', resources, resizePolicy },
          { name: 'none', resources: { limits: { cpu: '0' } } },
        ],
        resources: { limits: { memory: '1Gi' }, requests: { memory: '512Mi' } },
        priority: 1000,
        volumes: [
          { name: 'bounded', emptyDir: { medium: 'Memory', sizeLimit: '64Mi' } },
          { name: 'free', emptyDir: { medium: 'Memory' } },
          { name: 'disk', emptyDir: {} },
          { name: 'config', configMap: { name: 'config' } },
        ],
      },
      { phase: 'Running', qosClass: 'Burstable' },
    );
    expect(spec).toEqual({
      containers: [
        {
          name: 'web',
          kind: 'app',
          limits: { milliCpu: 500, memory: 128 * MiB },
          requests: { milliCpu: 250 },
          resizePolicy: { cpu: 'NotRequired', memory: 'RestartContainer' },
        },
        { name: 'none', kind: 'app', limits: {}, requests: {}, resizePolicy: notRequired },
      ],
      limits: { memory: 1024 * MiB },
      requests: { memory: 512 * MiB },
      priority: 1000,
      qosClass: 'Burstable',
      volumes: new Map([
        ['bounded', { sizeLimit: 64 * MiB }],
        ['free', {}],
      ]),
    });
  });

  test.each([
    ['Pending', undefined],
    ['Running', undefined],
    ['Unknown', undefined],
    ['Succeeded', true],
    ['Failed', true],
    [undefined, undefined],
  ])('the spec of a pod in the phase %s reports whether the pod has ended for good', (phase, hasEnded) => {
    expect(specOf({ containers: [{ name: 'web' }] }, { phase })?.hasEnded).toBe(hasEnded);
  });

  test.each([
    ['no spec', undefined],
    ['no containers', {}],
    ['an invalid quantity', { containers: [{ name: 'web', resources: { limits: { memory: 'much' } } }] }],
    ['a quantity of another type', { containers: [{ name: 'web', resources: { limits: { memory: {} } } }] }],
    ['too many containers', { containers: Array.from({ length: 257 }, () => ({ name: 'web' })) }],
    ['a name that is too long', { containers: [{ name: 'x'.repeat(64) }] }],
  ])('a spec with %s is not used', (_, spec) => {
    expect(specOf(spec, undefined)).toBeUndefined();
  });
});

describe('stored specs', () => {
  const pod = (more: Partial<ApiPod>): ApiPod => {
    const spec = specOf({ containers: [{ name: more.name ?? 'web' }] }, undefined);
    return {
      uid: 'uid-1',
      namespace: 'default',
      name: 'web',
      isMirror: false,
      isEnding: false,
      volumes: {},
      spec,
      ...more,
    };
  };
  const web = { sandboxId: 'a', uid: 'uid-1', namespace: 'default', name: 'web' };

  const isStatic = (sandboxId: string): boolean => sandboxId === 'static';
  const allSpecs = (): SpecStore => new SpecStore({ isStatic, sizeLimitsSeen: () => undefined });

  test('H2: the spec of a mirror pod is used only for a static pod', () => {
    const specs = allSpecs();
    specs.present(pod({ isMirror: true }));
    expect(specs.of(web)).toBeUndefined();
    expect(specs.of({ ...web, sandboxId: 'static' })?.containers[0]?.name).toBe('web');
  });

  test('KEP-6030: a size limit of a memory-backed volume is reported when it is first seen and when it changes', () => {
    const seen: string[] = [];
    const specs = new SpecStore({ isStatic, sizeLimitsSeen: ({ name }) => void seen.push(name) });
    const withLimit = (name: string, sizeLimit?: string): ApiPod => {
      const volumes = [{ name: 'cache', emptyDir: { medium: 'Memory', sizeLimit } }];
      return { ...pod({ name }), spec: specOf({ containers: [{ name }], volumes }, undefined) };
    };
    specs.present(withLimit('bounded', '64Mi'));
    specs.present(withLimit('free'));
    specs.replace([withLimit('bounded', '64Mi'), withLimit('free')]);
    expect(seen).toEqual(['bounded']);
    specs.replace([withLimit('bounded', '96Mi')]);
    specs.present(withLimit('bounded', '96Mi'));
    specs.present(withLimit('bounded', '32Mi'));
    expect(seen).toEqual(['bounded', 'bounded', 'bounded']);
    // The pods are added to the node after their specs.
    specs.present(withLimit('free'));
    for (const name of ['bounded', 'free', 'other']) specs.look({ ...web, name });
    expect(seen).toHaveLength(4);
    specs.gone({ ...web, name: 'free' });
    expect(specs.of({ ...web, name: 'free' })).toBeUndefined();
  });

  test('H2: a spec is used only for the pod with the same namespace, name and uid', () => {
    const specs = allSpecs();
    specs.present(pod({ namespace: 'tenant' }));
    specs.present(pod({ name: 'attacker' }));
    specs.present(pod({ uid: 'uid-2' }));
    expect(specs.of(web)).toBeUndefined();
    specs.present(pod({}));
    expect(specs.of(web)?.containers[0]?.name).toBe('web');
    specs.gone(pod({ namespace: 'tenant' }));
    expect(specs.of(web)).toBeDefined();
    specs.gone(pod({}));
    expect(specs.of(web)).toBeUndefined();
  });

  test('stored specs are replaced by each list, and are dropped when they are no longer valid', () => {
    const specs = allSpecs();
    specs.present(pod({}));
    specs.present(pod({ spec: undefined }));
    expect(specs.of(web)).toBeUndefined();
    specs.present(pod({}));
    specs.replace([pod({ name: 'other', uid: 'uid-3' })]);
    expect(specs.of(web)).toBeUndefined();
    expect(specs.of({ ...web, name: 'other', uid: 'uid-3' })).toBeDefined();
  });
});
