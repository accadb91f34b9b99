import { describe, expect, test } from 'vitest';
import { firstChange } from '../../src/kubernetes/annotations/change.ts';
import { podOf } from '../../src/kubernetes/pods/pod.ts';
import { VolumePolicies } from '../../src/sandbox/volumes/policies.ts';
import { readRequested } from '../../src/sandbox/queue/request.ts';
import { parseVolumeAnnotation, readVolumeAnnotations } from '../../src/tmpfs/sizes.ts';
import { hostileNames } from '../support/kubernetes/hostile-names.ts';
import { MiB } from '../../src/core/quantities/sizes.ts';

const KEY = 'volume.cri-resize-shim.io/';
const none = { limits: { cpu: '', memory: '' }, requests: { cpu: '', memory: '' } };

describe('H2: the annotations of a pod', () => {
  test.each(hostileNames)('an annotation with %s as its volume name is rejected', (_, name) => {
    const { policies, errors } = readVolumeAnnotations(Object.fromEntries([[KEY + name, '1Mi']]));
    expect([...policies]).toEqual([]);
    expect(errors.map(({ reason }) => reason)).toEqual(['INVALID_ANNOTATION']);
    expect(() => readRequested({ pod: none, containers: {}, volumes: Object.fromEntries([[name, '1Mi']]) })).toThrow(
      'not the name of a volume',
    );
  });

  test.each(hostileNames)('an annotation with %s as its container name is rejected', (_, name) => {
    expect(() => parseVolumeAnnotation(`${KEY}cache`, `50%/${name}`)).toThrow('not the name of a container');
  });

  test.each(hostileNames)('a mirror annotation with %s is ignored, unless it has the form of a uid', (_, uid) => {
    const annotations = { 'kubernetes.io/config.mirror': uid };
    const ownerReferences = [{ kind: 'Node', name: 'node-1' }];
    const metadata = { uid: 'uid-own', name: 'web', namespace: 'tenant', resourceVersion: '1' };
    const pod = podOf({ metadata: { ...metadata, annotations, ownerReferences } }, 'node-1');
    // Only this one has the characters of a uid. No pod of the node has it.
    const isUid = uid === '__proto__';
    expect(pod).toMatchObject({ uid: isUid ? uid : 'uid-own', isMirror: isUid, namespace: 'tenant', name: 'web' });
  });

  test('annotations set the size of volumes of their own pod only', () => {
    const policies = new VolumePolicies();
    policies.annotate('attacker', { [`${KEY}cache`]: '1Mi', [`${KEY}victim/cache`]: '1Mi' });
    expect(policies.policy('attacker', 'cache')).toEqual({ kind: 'absolute', size: MiB });
    expect(policies.policy('victim', 'cache')).toEqual({ kind: 'fixed' });
  });

  test('a volume may have the name of a member of every object, such as constructor', () => {
    const policy = () => ({ kind: 'fixed' }) as const;
    const requested = { constructor: '1Mi' } as Record<string, string>;
    expect(firstChange({ web: '1Mi' }, { atCreation: {}, requested: {}, policy })).toEqual({
      volume: 'web',
      text: '1Mi',
    });
    expect(firstChange(requested, { atCreation: {}, requested: {}, policy })).toEqual({
      volume: 'constructor',
      text: '1Mi',
    });
    expect(firstChange(requested, { atCreation: {}, requested, policy })).toBeUndefined();
    expect(firstChange({}, { atCreation: {}, requested, policy })).toEqual({ volume: 'constructor', text: undefined });
  });
});
